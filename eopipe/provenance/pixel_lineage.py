"""What is known of one pixel of a map: its values, its split, and the scenes that show it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.splits import SPLITS, read_split
from eopipe.errors import BadInputError, UsageError
from eopipe.provenance.jobs import Job
from eopipe.provenance.lineage_graph import Trail
from eopipe.tiles.store import NO_LABEL, Tiles

NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Spot:
    """A pixel: row and column in the grid, and its centre in the CRS of the map."""

    row: int
    column: int
    x: float
    y: float
    crs: str

    @property
    def window(self) -> tuple[slice, slice]:
        """The pixel as a window."""
        return slice(self.row, self.row + 1), slice(self.column, self.column + 1)

    @property
    def words(self) -> str:
        """Where it is."""
        return f"pixel={self.column},{self.row} (column, row from 0), centre {self.x:.10g},{self.y:.10g} in {self.crs}"


def spot(path: Path, where: str) -> Spot:
    """Find a pixel of a map: `x,y` in its CRS, or `pixel=column,row`.

    Raises UsageError for a place that is written otherwise or lies beyond the map, BadInputError for what is no map.
    """
    import rasterio
    from rasterio.errors import RasterioIOError

    told = re.fullmatch(rf"(pixel=)?({NUMBER}),({NUMBER})", where)
    if not told:
        raise UsageError(f"{where} is no place in a map; write #x,y in its CRS, or #pixel=column,row")
    try:
        with rasterio.open(path) as file:
            place, (height, width), crs = file.transform, file.shape, str(file.crs)
    except RasterioIOError as error:
        raise BadInputError(f"{path} is no map, so it has no pixels; give a GeoTIFF that predict made") from error
    first, second = float(told[2]), float(told[3])
    column, row = (first, second) if told[1] else ~place * (first, second)
    if not (0 <= column < width and 0 <= row < height):
        raise UsageError(f"{where} lies beyond {path.name}, which has {width} x {height} pixels in {crs}")
    x, y = place * (int(column) + 0.5, int(row) + 0.5)
    return Spot(int(row), int(column), x, y, crs)


def values(maps: list[Path], at: Spot) -> Iterator[str]:
    """What maps say there, a line a band."""
    import rasterio
    from rasterio.windows import Window

    for path in maps:
        with rasterio.open(path) as file:
            legend = dict(one.split("=", 1) for one in str(file.tags().get("classes", "")).split(", ") if "=" in one)
            found = file.read(window=Window.from_slices(*at.window))[:, 0, 0]
            for name, value, scale in zip(file.descriptions, found, file.scales, strict=True):
                yield f"{path.name}: {name} {_value(value, file.nodata, scale, legend if name == 'class' else {})}"


def _value(value: Any, nodata: float | None, scale: float, legend: dict[str, str]) -> str:
    if value == nodata or np.isnan(value):
        return "is not known"
    name = legend.get(str(value))
    return f"{value} ({name})" if name else f"{float(value) * scale:.4g}"


def role(split: Path, at: Spot) -> Iterator[str]:
    """In which split the pixel lay, and the chips that held it."""
    told = read_split(split)
    edge, scenes = told["chip"], told["scenes"]
    held = {name: _holding(told["samples"][name], edge, at) for name in SPLITS}
    inside = [name for name in SPLITS if len(held[name])]
    yield f"split: {' and '.join(inside) or 'in no chip of train, val or test'}"
    for name in inside:
        corners = sorted({(int(row), int(column)) for _, row, column in held[name]})
        of = sorted({scenes[scene] for scene in held[name][:, 0]})
        places = "; ".join(f"row {row}, column {column}" for row, column in corners)
        yield f"  {name}: {len(held[name])} chips of {edge} pixels, of {len(of)} scenes, at {places}"


def dealt(split: Path) -> str:
    """How many chips each split has."""
    samples = read_split(split)["samples"]
    return ", ".join(f"{len(samples[name])} {name}" for name in SPLITS)


def _holding(samples: Any, edge: int, at: Spot) -> Any:
    """The samples (scene, row, column) whose chip covers the pixel."""
    _, row, column = samples.T
    return samples[(row <= at.row) & (at.row < row + edge) & (column <= at.column) & (at.column < column + edge)]


def truth(labels: Path, at: Spot) -> str:
    """What the labels say there."""
    store = Tiles(labels)
    value = store.read("label", *at.window)[0, 0]
    if value.dtype.kind == "f":
        return f"label: {value:.4g}" if np.isfinite(value) else "label: none"
    return f"label: {store.names[value]}" if value != NO_LABEL else "label: none"


def seen(trail: Trail, job: Job, at: Spot) -> dict[str, bool]:
    """Whether each scene that a map was made of shows the pixel, by the name of its store, where the store is there."""
    stores = [data for data in job.record.inputs if data.port == "tiles" and data.key in trail.places]
    return {data.name: bool(Tiles(trail.places[data.key]).read("valid", *at.window)[0, 0]) for data in stores}
