"""What a map of a finished model is like, as the content of `status.json`: areas, missing classes, drift of inputs."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from eopipe.arrays import AnyArray
from eopipe.documents import OPEN, Count, Ends, NotNegative, Share, Text, read_model
from eopipe.models.input_check import ORDINARY, TileProperties

# Beside the report of a map by a finished model.
STATUS = "status.json"


class BandRange(BaseModel, **OPEN):
    """The 1 % and 99 % quantiles of a band in the training and in the inputs; the share of these beyond the former."""

    training: Ends
    inputs: Ends
    beyond: Share


class MappedArea(BaseModel, **OPEN):
    """Pixels of a class on the map, and their hectares on the ground."""

    pixels: Count
    hectares: NotNegative


class MapStatus(BaseModel, **OPEN):
    """The content of status.json; `days` are the first and the last, `areas` empty for a map of continuous values."""

    model: Text
    task: Text
    classes: Annotated[list[Text], Field(min_length=1)]
    scenes: Count
    days: list[Text]
    compared: bool
    unlike_training: list[str]
    missing_classes: list[str]
    areas: dict[str, MappedArea]
    bands: dict[str, BandRange]

    @classmethod
    def read(cls, path: Path) -> "MapStatus":
        """Read status.json. Raises BadInputError for another file."""
        return read_model(path, cls, "the status of a map")

    @property
    def findings(self) -> list[str]:
        """A sentence for each way in which the inputs are unlike the training inputs, and for missing classes."""
        if not self.missing_classes:
            return self.unlike_training
        return [*self.unlike_training, f"The map has no pixel of {', '.join(self.missing_classes)}."]


def band_ranges(trained_on: TileProperties | None, values: dict[str, AnyArray]) -> dict[str, BandRange]:
    """The bands whose values in the training are known, with valid pixels (n,) here in physical units."""
    ranges = {}
    for band, ends in trained_on.ranges.items() if trained_on else ():
        pixels = values.get(band, np.empty(0))
        if len(ends) == len(ORDINARY) and pixels.size:
            beyond = float(np.mean((pixels < ends[0]) | (pixels > ends[1])))
            inputs: list[Any] = np.quantile(pixels, ORDINARY).tolist()
            ranges[band] = BandRange(training=[*ends], inputs=inputs, beyond=beyond)
    return ranges
