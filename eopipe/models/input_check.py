"""Compare the tiles that a model is applied to with those of its training: pixel size, unit, processing level."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.tiles.grid import pixel_metres
from eopipe.tiles.store import Tiles

# Pixel sizes within 10 % count as equal: those of one product differ by this between projections.
TOLERANCE = 1.1
# Units of numbers that are ratios, and of stored numbers that nothing scales.
UNITLESS = ("", "1", "none", "unitless", "dimensionless", "reflectance")
RATIO, DIGITAL_NUMBERS = "physical values without a unit", "digital numbers"
UNKNOWN_LEVEL = ""


@dataclass(frozen=True)
class TileProperties:
    """What the numbers of tiles mean: pixel size in metres, units, processing levels (the number alone; '' unknown)."""

    pixel_size: float
    units: tuple[str, ...]
    levels: tuple[str, ...]

    @classmethod
    def of(cls, stores: Sequence[Tiles]) -> "TileProperties":
        """The properties of stores of one grid."""
        width, height = pixel_metres(stores[0].frame.cells[0].grid)
        size = float(f"{(width * height) ** 0.5:.4g}")
        return cls(size, tuple(sorted({*map(unit_of, stores)})), tuple(sorted({*map(level_of, stores)})))

    @classmethod
    def read(cls, content: dict[str, Any], path: Path) -> "TileProperties":
        """Read the properties from a model's item. Raises BadInputError for anything else."""
        try:
            return cls(float(content["pixel_size"]), tuple(content["units"]), tuple(content["levels"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"{path} describes the tiles of the training without {error}") from error


def unit_of(store: Tiles) -> str:
    """The declared unit of a store's numbers, or else whether they are physical or as they were stored."""
    unit = str(store.attributes.get("unit") or "")
    if unit.lower() not in UNITLESS:
        return unit
    is_unscaled = store.array("image").dtype.kind in "iu" and store.scaling == (1.0, 0.0)
    return DIGITAL_NUMBERS if is_unscaled and not unit else RATIO


def level_of(store: Tiles) -> str:
    """The number of the processing level, as the item declares it or as the collection's name has it."""
    attributes = store.attributes
    texts = (str(attributes.get(key) or "").lower() for key in ("level", "collection"))
    matches = (re.search(r"(?<![a-z])l(?:evel[ -]?)?(\d)(?!\d)", text) for text in texts)
    return next((match[1] for match in matches if match), UNKNOWN_LEVEL)


def check_tiles(trained_on: TileProperties | None, stores: Sequence[Tiles], allow: tuple[str, ...]) -> None:
    """Raise BadInputError where tiles differ from those of the training, unless `allow` names the kind of difference.

    Models of older versions, which do not describe their tiles, are not checked.
    """
    if trained_on is None:
        return
    allowed = {entry.partition(":")[0] for entry in allow}
    differences = [(kind, text) for kind, text in _differences(trained_on, stores) if kind not in allowed]
    if differences:
        kinds = " and ".join(f"'{kind}: reason'" for kind in dict.fromkeys(kind for kind, _ in differences))
        raise BadInputError(
            f"the tiles are unlike those of the training: {'; '.join(text for _, text in differences)}. "
            f"Use other tiles, or accept the difference in predict.allow as {kinds}"
        )


def _differences(trained_on: TileProperties, stores: Sequence[Tiles]) -> Iterator[tuple[str, str]]:
    """Kind and text of each difference; scenes that differ in the same way are listed together."""
    size = TileProperties.of(stores).pixel_size
    if not 1 / TOLERANCE <= size / trained_on.pixel_size <= TOLERANCE:
        yield "pixel-size", f"their pixels are {size:g} m wide, those of the training {trained_on.pixel_size:g} m"
    units, levels = ({store.scene: of(store) for store in stores} for of in (unit_of, level_of))
    for unit in sorted(set(units.values()) - set(trained_on.units)):
        yield "unit", f"{_scenes(units, unit)} {unit}, not {' or '.join(trained_on.units)}"
    for level in sorted(set(levels.values()) - {*trained_on.levels, UNKNOWN_LEVEL}):
        if UNKNOWN_LEVEL not in trained_on.levels:
            yield "level", f"{_scenes(levels, level)} processing level {level}, not {' or '.join(trained_on.levels)}"


def _scenes(values: dict[str, str], value: str) -> str:
    scenes = [scene for scene in values if values[scene] == value]
    return f"scene {scenes[0]}" + (f" and {len(scenes) - 1} more have" if len(scenes) > 1 else " has")
