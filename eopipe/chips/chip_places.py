"""True places of the chips of packed stores, from the index in them: slots are not places."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.chip_set import INDEX, INDEX_ARRAY, SLOT_STEP, STORE
from eopipe.chips.splits import STRIPS, SplitPlan
from eopipe.documents import OPEN, Count, PositiveCount, Text, invertible, read_document, typed_mistakes
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.globe import to_degrees
from eopipe.tiles.store import CHIP_SET, Tiles

METHODS = ("random", "blocks", "temporal", "group", *STRIPS)
# Slots of a store, as `eopipe import` writes it.
MAX_SLOTS = (STORE // SLOT_STEP) ** 2
# Square degrees of a chip: far below a pixel of one millimetre.
MIN_AREA = 1e-18
# Along the outline of a chip, in edges from the top left: corners and middles of the edges.
OUTLINE = np.array([(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1)]) / 2


PixelEdge = Annotated[PositiveCount, Field(le=4096)]
OneValue = str | Annotated[float, Field(allow_inf_nan=False)] | bool | None


class _ChipRecord(BaseModel):
    """A record of the index of a chip set, as `eopipe import` writes it; other columns have a text or a number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, OneValue]

    id: Text
    source: str
    store: str
    row: Count
    column: Count
    height: PixelEdge
    width: PixelEdge
    crs: Text
    transform: Annotated[list[float], AfterValidator(invertible)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    date: str | None
    name: str | None = Field(alias="class")
    labelled_pixels: Count
    valid_pixels: Count
    window: list[int] | None = None


class _ChipIndex(BaseModel, **OPEN):
    """The index of a chip set beside its stores."""

    slot: PixelEdge
    stores: Annotated[list[Text], Field(min_length=1)]
    bands: Annotated[list[Text], Field(min_length=1)]
    classes: Annotated[list[Text], Field(min_length=1)]
    chips: Annotated[list[_ChipRecord], Field(min_length=1)]


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a chip set. Raises BadInputError for a file that `eopipe import` did not write."""
    index: dict[str, Any] = read_document(folder / INDEX, _ChipIndex, "the index of a chip set", "chips")
    return index


def _read_records(store: Tiles) -> list[dict[str, Any]]:
    """The records of the index in a store of packed chips. Raises BadInputError for what is not one."""
    label, slot = f"the index in {store.path}", store.attributes[CHIP_SET]["slot"]
    try:
        array: Any = store.group.get(INDEX_ARRAY)
        length, chunks = math.prod(array.shape), array.nchunks
        # What does not exist reads as the fill value, so that a few bytes can declare any number of rows and chunks.
        if chunks > 1 or length > min(math.prod(edge // slot for edge in store.shape), MAX_SLOTS):
            raise BadInputError(
                f"{label} does not belong to a chip set: it has {length} rows in {chunks} chunks, and at most one row "
                "for each slot in one chunk is read"
            )
        records: list[dict[str, Any]] = [json.loads(text) for text in array[:].ravel().tolist()]
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise BadInputError(f"{label} does not belong to a chip set: it has no rows of JSON texts") from error
    if sentences := typed_mistakes(list[_ChipRecord], records):
        raise BadInputError(f"{label} does not belong to a chip set: {'; '.join(sentences)}")
    height, width = store.shape
    for record in records:
        corner = record["row"], record["column"]
        is_slot = all(
            first % slot == 0 and first + slot <= edge for first, edge in zip(corner, (height, width), strict=True)
        )
        if not is_slot or max(record["height"], record["width"]) > slot:
            raise BadInputError(f"{label} has the chip {record['id']} at a place that is not a slot of the store")
    for crs in sorted({record["crs"] for record in records}):
        try:
            to_degrees(crs)
        except BadInputError as error:
            raise BadInputError(f"{label} has chips with a CRS that does not exist: {crs[:60]!r}") from error
    return records


@dataclass(frozen=True)
class ChipPlaces:
    """The chips of packed stores: samples (n, 3) of their slots, records of the index, edge of a slot in pixels."""

    slot: int
    samples: IntArray
    records: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, stores: Sequence[Tiles]) -> "ChipPlaces | None":
        """The chips of stores in the order of their numbers; None of stores of scenes on a grid.

        Raises BadInputError where only some of the stores are packed, have slots of another edge, or none has a chip.
        """
        sets = [store.attributes.get(CHIP_SET) for store in stores]
        if not any(sets):
            return None
        slots = {entry["slot"] if entry else 0 for entry in sets}
        if len(slots) > 1:
            raise BadInputError("stores of different chip sets, or of chips and of scenes, cannot be split together")
        samples: list[tuple[int, int, int]] = []
        records: list[dict[str, Any]] = []
        for number, store in enumerate(stores):
            of_store = _read_records(store)
            records += of_store
            samples += [(number, record["row"], record["column"]) for record in of_store]
        if not records:
            raise BadInputError(f"{stores[0].path} is of a chip set without a chip; run eopipe import again")
        return cls(slots.pop(), np.array(samples, np.int64).reshape(-1, 3), tuple(records))

    def plan(self, plan: SplitPlan) -> SplitPlan:
        """The plan with a chip for each slot. Raises UsageError for methods that need a grid, or polygons."""
        if plan.method not in METHODS or plan.by_polygon:
            raise UsageError(
                f"split.method {plan.method}{' by polygon' * plan.by_polygon} does not work on a chip set, whose chips "
                "are at places of their own with masks: split by blocks, strips, temporal or group (by scene, tile, "
                "region, or a column such as group)"
            )
        return replace(plan, chip=self.slot, stride=self.slot, block=self.slot)

    def corners(self, store: int) -> IntArray:
        """First row and column (n, 2) of the slots of a store that hold a chip."""
        return self.samples[self.samples[:, 0] == store, 1:]

    def sizes(self, store: int) -> IntArray:
        """Pixels (n,) of the chips of a store."""
        chosen = np.flatnonzero(self.samples[:, 0] == store)
        return np.array([self.records[n]["height"] * self.records[n]["width"] for n in chosen], np.int64)

    def indices(self, samples: IntArray) -> IntArray:
        """The indices (n,) of the chips at these slots (n, 3)."""
        return np.array([self._by_slot[tuple(row)] for row in samples.tolist()], np.int64)

    @cached_property
    def _by_slot(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): number for number, row in enumerate(self.samples.tolist())}

    @cached_property
    def degrees(self) -> Float64Array:
        """Longitude and latitude (n, 2) of the centres."""
        centres = [(record["longitude"], record["latitude"]) for record in self.records]
        return np.array(centres, np.float64).reshape(-1, 2)

    @cached_property
    def outlines(self) -> Float64Array:
        """Longitude and latitude (n, 8, 2) along the outlines: corners and middles of the edges, from the top left."""
        import shapely

        outlines = np.empty((len(self.records), len(OUTLINE), 2))
        crs = np.array([record["crs"] for record in self.records], object)
        sizes = np.array([(record["width"], record["height"]) for record in self.records], np.float64)
        transforms = np.array([record["transform"] for record in self.records], np.float64)
        for name in sorted(set(crs.tolist())):
            chosen = np.flatnonzero(crs == name)
            positions = OUTLINE * sizes[chosen, None]
            a, b, c, d, e, f = transforms[chosen].T[:, :, None]
            x = a * positions[..., 0] + b * positions[..., 1] + c
            y = d * positions[..., 0] + e * positions[..., 1] + f
            outlines[chosen] = np.stack(to_degrees(name).transform(x, y), -1)
        if len(outside := np.flatnonzero(~np.isfinite(outlines).all((1, 2)))):
            record = self.records[outside[0]]
            raise BadInputError(f"the chip {record['id']} is at a place that its CRS {record['crs']} does not have")
        unrolled = np.stack([np.unwrap(outlines[..., 0], period=360), outlines[..., 1]], -1)
        polygons = shapely.polygons(unrolled)
        if len(invalid := np.flatnonzero((shapely.area(polygons) < MIN_AREA) | ~shapely.is_valid(polygons))):
            raise BadInputError(f"the chip {self.records[invalid[0]]['id']} has an outline without one area in degrees")
        return outlines
