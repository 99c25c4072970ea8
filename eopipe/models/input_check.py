"""Compare the tiles that a model is applied to with its training tiles.

Another pixel size, unit or processing level is refused; season, sensor, processing baseline and values are described.
"""

import re
from calendar import month_abbr
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import Tiles

# Pixel sizes within 10 % count as equal: the pixels of one product differ by this between projections.
TOLERANCE = 1.1
# Units of numbers that are ratios, and of stored numbers that nothing scales.
UNITLESS = ("", "1", "none", "unitless", "dimensionless", "reflectance")
RATIO, DIGITAL_NUMBERS = "physical values without a unit", "digital numbers"
UNKNOWN_LEVEL = ""
# Attributes of a store that list where its pixels are from.
ORIGIN = ("sensors", "baselines")
# Shares of the training pixels below and above which values are rare.
ORDINARY = (0.01, 0.99)
# The share of a band's pixels beyond them that is worth a warning; of the training's it is 0.02.
MANY_BEYOND = 0.1


@dataclass(frozen=True)
class TileProperties:
    """What the numbers of tiles mean: pixel size in metres, units, processing levels (the number alone; '' unknown).

    `months` (1 to 12), `sensors` and `baselines` describe their scenes, as far as these are known; `ranges` are the
    values of each band below which 1 % and 99 % of the training pixels are.
    """

    pixel_size: float
    units: tuple[str, ...]
    levels: tuple[str, ...]
    months: tuple[int, ...] = ()
    sensors: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    ranges: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, stores: Sequence[Tiles], ranges: dict[str, tuple[float, ...]] | None = None) -> "TileProperties":
        """The properties of stores of one grid; the ranges are taken from their training pixels."""
        width, height = pixel_metres(stores[0].frame.cells[0].grid)
        sensors, baselines = ({e for store in stores for e in store.attributes.get(name) or ()} for name in ORIGIN)
        return cls(
            pixel_size=float(f"{(width * height) ** 0.5:.4g}"),
            units=tuple(sorted({*map(physical_unit, stores)})),
            levels=tuple(sorted({*map(level_of, stores)})),
            months=tuple(sorted({month for store in stores for month in months_of(store)})),
            sensors=tuple(sorted(sensors)),
            baselines=tuple(sorted(baselines)),
            ranges=ranges or {},
        )

    @classmethod
    def read(cls, content: dict[str, Any], path: Path) -> "TileProperties":
        """Read the properties from a model's item; older ones have less. Raises BadInputError for anything else."""
        try:
            return _PROPERTIES.validate_python(content)
        except ValidationError as error:
            names = ", ".join(sorted({str(row["loc"][0]) for row in error.errors()}))
            raise BadInputError(f"{path} describes the tiles of the training without a right {names}") from error


_PROPERTIES = TypeAdapter(TileProperties)


def months_of(store: Tiles) -> list[int]:
    """The months (1 to 12) of a store, of a composite all from its first to its last day; empty where none is known."""
    attributes = store.attributes
    ends = [
        str(attributes.get(key) or attributes.get("datetime") or "")[:7] for key in ("start_datetime", "end_datetime")
    ]
    if not all(ends):
        return []
    first, last = (12 * int(text[:4]) + int(text[5:7]) - 1 for text in ends)
    return sorted({month % 12 + 1 for month in range(first, min(last, first + 11) + 1)})


def physical_unit(store: Tiles) -> str:
    """The declared unit of a store's numbers, or else whether they are physical or as they were stored."""
    return unit_of_numbers(str(store.attributes.get("unit") or ""), store.array("image").dtype, store.scaling)


def unit_of_numbers(unit: str, dtype: Any, scaling: tuple[float, float]) -> str:
    """The declared unit of numbers, or else whether they are physical or as they were stored."""
    if unit.lower() not in UNITLESS:
        return unit
    return DIGITAL_NUMBERS if np.dtype(dtype).kind in "iu" and scaling == (1.0, 0.0) and not unit else RATIO


def level_of(store: Tiles) -> str:
    """The number of the processing level, as the item declares it or as the collection's name has it."""
    attributes = store.attributes
    texts = (str(attributes.get(key) or "").lower() for key in ("level", "collection"))
    matches = (re.search(r"(?<![a-z])l(?:evel[ -]?)?(\d)(?!\d)", text) for text in texts)
    return next((match[1] for match in matches if match), UNKNOWN_LEVEL)


def check_tiles(trained_on: TileProperties | None, stores: Sequence[Tiles], allow: tuple[str, ...]) -> None:
    """Raise BadInputError where tiles differ from the training tiles, unless `allow` names the kind of difference.

    Models of older versions, which do not describe their tiles, are not checked.
    """
    if trained_on is None:
        return
    allowed = {entry.partition(":")[0] for entry in allow}
    differences = [(kind, text) for kind, text in _differences(trained_on, stores) if kind not in allowed]
    if differences:
        kinds = " and ".join(f"'{kind}: reason'" for kind in dict.fromkeys(kind for kind, _ in differences))
        raise BadInputError(
            f"the tiles are unlike the training tiles: {'; '.join(text for _, text in differences)}. "
            f"Use other tiles, or accept the difference in predict.allow as {kinds}"
        )


def _differences(trained_on: TileProperties, stores: Sequence[Tiles]) -> Iterator[tuple[str, str]]:
    """Kind and text of each difference; scenes that differ in the same way are listed together."""
    size = TileProperties.of(stores).pixel_size
    if not 1 / TOLERANCE <= size / trained_on.pixel_size <= TOLERANCE:
        yield "pixel-size", f"their pixels are {size:g} m wide, in the training {trained_on.pixel_size:g} m"
    units, levels = ({store.scene: of(store) for store in stores} for of in (physical_unit, level_of))
    for unit in sorted(set(units.values()) - set(trained_on.units)):
        yield "unit", f"{_scenes(units, unit)} {unit}, not {' or '.join(trained_on.units)}"
    for level in sorted(set(levels.values()) - {*trained_on.levels, UNKNOWN_LEVEL}):
        if UNKNOWN_LEVEL not in trained_on.levels:
            yield "level", f"{_scenes(levels, level)} processing level {level}, not {' or '.join(trained_on.levels)}"


def unfamiliar_inputs(trained_on: TileProperties, stores: Sequence[Tiles], values: Mapping[str, AnyArray]) -> list[str]:
    """A sentence for each way in which tiles are unlike the training tiles; empty where none differ.

    `values` are physical values of valid pixels by band. Neighbouring months count as the same, and what
    is not known of one of the two is not compared.
    """
    tiles, sentences = TileProperties.of(stores), []
    near = {(month + step) % 12 + 1 for month in trained_on.months for step in (-2, -1, 0)}
    months = [month for month in tiles.months if near and month not in near]
    if months:
        names = (", ".join(month_abbr[month] for month in some) for some in (months, trained_on.months))
        sentences.append("Scenes are of another season: {}; the training has {}.".format(*names))
    for name, of_tiles, of_training in (
        ("sensor", tiles.sensors, trained_on.sensors),
        ("processing baseline", tiles.baselines, trained_on.baselines),
    ):
        if of_training and (others := [entry for entry in of_tiles if entry not in of_training]):
            sentences.append(
                f"Scenes are of another {name}: {', '.join(others)}; the training has {', '.join(of_training)}."
            )
    for band, (low, high) in ((band, ends) for band, ends in trained_on.ranges.items() if len(ends) == len(ORDINARY)):
        pixels = values.get(band, np.empty(0))
        below, above = (100 * float(np.mean(part)) if pixels.size else 0.0 for part in (pixels < low, pixels > high))
        if below + above > 100 * MANY_BEYOND:
            sentences.append(
                f"{band}: {below:.0f} % of the pixels are below {low:.4g} and {above:.0f} % above {high:.4g}, between "
                "which 98 % of the training pixels are."
            )
    return sentences


def _scenes(values: dict[str, str], value: str) -> str:
    scenes = [scene for scene in values if values[scene] == value]
    return f"scene {scenes[0]}" + (f" and {len(scenes) - 1} more have" if len(scenes) > 1 else " has")
