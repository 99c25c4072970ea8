"""Chip sets: chips with places of their own, packed into the slots of few tile and label stores, with an index.

Chip number k is at a fixed slot (row, column) of a store; all slots have one edge, and a smaller chip is at the top
left of its slot, the rest of which is not valid. A chunk is a slot, so a chip is one read. Rows and columns of such a
store are not places: its CRS is on a body other than Earth, so that PROJ and GDAL refuse to compute a false position.
"""

import json
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.chips.chip_files import ChipFile, ChipHeader, read_header, read_image, read_mask
from eopipe.errors import BadInputError
from eopipe.labels.kinds import Legend, class_flags
from eopipe.labels.source_values import SourceValues, attributes_of
from eopipe.processes import map_in_order
from eopipe.publish import publish, refuse_foreign
from eopipe.text_files import write_json
from eopipe.tiles.globe import common_bounds
from eopipe.tiles.layout import ArrayWriter, Layout, ShardRegion, shard_regions
from eopipe.tiles.store import CHIP_SET, NO_LABEL, add_array, declare_nodata, new_store

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
# Edges of slots are multiples of the first; of a shard and a store in pixels.
SLOT_STEP, SHARD, STORE = 16, 4096, 8192
# The array of a packed store with the row of the index of each of its chips, and the index of the set.
INDEX_ARRAY, INDEX = "chips", "chips.json"
NAMES_IN_LOG = 20
NOT_A_PLACE = "slots of a chip set (not a place)"
_DEGREE = 'ANGLEUNIT["degree",0.0174532925199433]'
# odc-geo knows projected and geographic CRSs, no engineering ones; PROJ and GDAL refuse to transform between bodies.
SLOT_CRS = (
    f'PROJCRS["{NOT_A_PLACE}",BASEGEOGCRS["{NOT_A_PLACE}",DATUM["{NOT_A_PLACE}",'
    f'ELLIPSOID["unit sphere",1,0,LENGTHUNIT["metre",1]]],PRIMEM["Reference meridian",0,{_DEGREE}],'
    f'CS[ellipsoidal,2],AXIS["latitude",north],AXIS["longitude",east],{_DEGREE}],'
    'CONVERSION["none",METHOD["Equidistant Cylindrical (Spherical)",ID["EPSG",1029]],'
    f'PARAMETER["Latitude of 1st standard parallel",0,{_DEGREE}]],'
    'CS[Cartesian,2],AXIS["easting (E)",east],AXIS["northing (N)",north],LENGTHUNIT["metre",1]]'
)


@dataclass(frozen=True)
class SlotGrid:
    """Where the chips of a set are: `stores` of one shape with `rows` x `columns` slots of an edge in pixels."""

    edge: int
    stores: int
    rows: int
    columns: int

    @classmethod
    def for_chips(cls, count: int, largest: int) -> "SlotGrid":
        """The slots for a number of chips whose largest edge is `largest` pixels, in as few stores as possible."""
        edge = -(-largest // SLOT_STEP) * SLOT_STEP
        across = 2 * (SHARD // edge)
        stores = -(-count // across**2)
        of_store = -(-count // stores)
        columns = min(math.isqrt(of_store - 1) + 1, across)
        return cls(edge, stores, -(-of_store // columns), columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of a store in pixels."""
        return self.rows * self.edge, self.columns * self.edge

    @property
    def layout(self) -> Layout:
        """A chunk for each slot, in shards of at most 4096 pixels."""
        return Layout(self.edge, SHARD // self.edge * self.edge)

    def slot(self, chip: int) -> tuple[int, int, int]:
        """Store, and first row and column in pixels, of a chip."""
        store, number = divmod(chip, self.rows * self.columns)
        row, column = divmod(number, self.columns)
        return store, row * self.edge, column * self.edge

    def chips_of(self, store: int, count: int) -> range:
        """The numbers of the chips of a store, of `count` in all."""
        capacity = self.rows * self.columns
        return range(store * capacity, min((store + 1) * capacity, count))

    def grid(self, pixel_m: float) -> "GeoBox":
        """The grid of each store, with pixels of this edge in metres, in a CRS without a place on Earth."""
        from affine import Affine
        from odc.geo.geobox import GeoBox

        return GeoBox(self.shape, Affine(pixel_m, 0, 0, 0, -pixel_m, 0), SLOT_CRS)


@dataclass(frozen=True)
class ImportOptions:
    """How files are read: names of the bands, nodata, scale and offset where the files state none or false ones.

    `group` is a regular expression: what it matches in an id, or its first group, is the column `group` of the index.
    """

    bands: tuple[str, ...] = ()
    nodata: float | None = None
    scale: float | None = None
    offset: float | None = None
    collection: str | None = None
    group: str = ""
    threads: int = 2


@dataclass(frozen=True)
class PackedRegion:
    """An encoded region of a tile store and its label store, and what was counted in it.

    `labelled` (chips, classes), `valid` (chips,): pixels of each chip; `zeros`: valid numbers that are 0.
    """

    rows: list[list[list[bytes]]]
    chips: range
    labelled: IntArray
    valid: IntArray
    zeros: int


class ChipSetWriter:
    """Writes the stores of a chip set, region by region, and collects its index."""

    def __init__(
        self, chips: Sequence[ChipFile], headers: Sequence[ChipHeader], legend: Legend, options: ImportOptions
    ) -> None:
        self.chips, self.headers, self.legend, self.options = chips, headers, legend, options
        largest = max(max(header.height, header.width) for header in headers)
        self.slots = SlotGrid.for_chips(len(chips), largest)
        self._lock, self._unexplained = Lock(), list[str]()

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands: of the options, else of the first file."""
        return self.options.bands or self.headers[0].bands

    def write_store(self, folder: Path, number: int) -> list[dict[str, Any]]:
        """Publish a tile store and its label store; return the rows of the index."""
        name, slots, values = f"chips-{number:04d}", self.slots, SourceValues(self.legend, "")
        chips = slots.chips_of(number, len(self.chips))
        bbox = list(common_bounds([self.headers[chip].bounds for chip in chips]))
        description = {"slot": slots.edge, "rows": slots.rows, "columns": slots.columns, "chips": len(chips)}
        attributes: dict[str, Any] = {"datetime": None, "collection": self.options.collection}
        attributes |= {CHIP_SET: description | {"bbox": bbox}}
        names, grid = self.legend.classes, slots.grid(median_low(header.pixel_m for header in self.headers))
        with (
            new_store(folder / "labels" / f"{name}.zarr", grid, names, name, attributes) as labels,
            new_store(folder / "tiles" / f"{name}.zarr", grid, self.bands, name, attributes) as tiles,
        ):
            arrays = self._arrays(tiles, labels)
            rows, pixels, zeros = self._write(arrays, number, values)
            if not self.chips[0].label:
                self._check_values(values)
                labels.update_attributes(attributes_of(values.rows()))
            labels.attrs["pixels"] = dict(zip(names, pixels.tolist(), strict=True))
            share = sum(row["valid_pixels"] for row in rows) / math.prod(slots.shape)
            tiles.attrs["valid_fraction"] = round(share, 6)
            if not zeros:
                declare_nodata(tiles["image"])  # type: ignore[arg-type]
            for group in (tiles, labels):
                _write_index(group, rows)
        return rows

    def _arrays(self, tiles: "zarr.Group", labels: "zarr.Group") -> list["zarr.Array[Any]"]:
        """The arrays image, valid, label and its valid mask."""
        shape, layout, stated = self.slots.shape, self.slots.layout, self.headers[0].scaling
        scaling = {
            "scale_factor": stated[0] if self.options.scale is None else self.options.scale,
            "add_offset": stated[1] if self.options.offset is None else self.options.offset,
        }
        image = add_array(tiles, "image", (len(self.bands), *shape), self.headers[0].dtype, layout, **scaling)
        valid = add_array(tiles, "valid", shape, "uint8", layout)
        label = add_array(labels, "label", shape, "uint8", layout, **class_flags(self.legend.classes))
        declare_nodata(label, NO_LABEL)
        return [image, valid, label, add_array(labels, "valid", shape, "uint8", layout)]

    def _write(
        self, arrays: list["zarr.Array[Any]"], store: int, values: SourceValues
    ) -> tuple[list[dict[str, Any]], IntArray, int]:
        """Write all regions; the rows of the index by chip, the pixels of each class, and the valid zeros."""
        slots = self.slots
        writers = [ArrayWriter(array, slots.layout) for array in arrays]
        regions, by_chip, zeros = shard_regions(slots.shape, slots.layout), {}, 0
        pixels = np.zeros(len(self.legend.classes), np.int64)

        def pack(region: ShardRegion) -> PackedRegion:
            return self._pack(region, store, writers, values)

        packed_regions = map_in_order(pack, regions, self.options.threads)
        for region, packed in zip(regions, packed_regions, strict=True):
            for writer, encoded in zip(writers, packed.rows, strict=True):
                writer.write(region, encoded)
            zeros += packed.zeros
            pixels += packed.labelled.sum(0)
            for chip, labelled, valid in zip(packed.chips, packed.labelled, packed.valid, strict=True):
                by_chip[chip] = self._row(chip, labelled, int(valid))
        return [by_chip[chip] for chip in sorted(by_chip)], pixels, zeros

    def _pack(self, region: ShardRegion, store: int, writers: list[ArrayWriter], values: SourceValues) -> PackedRegion:
        """Read the chips of one row of slots in a shard, and encode them."""
        y, x = region.window
        edge, shape = self.slots.edge, (y.stop - y.start, x.stop - x.start)
        first = store * self.slots.rows * self.slots.columns + y.start // edge * self.slots.columns + x.start // edge
        last = min(first + shape[1] // edge, len(self.chips))
        chips = range(first, max(last, first))
        image = np.zeros((len(self.bands), *shape), self.headers[0].dtype)
        valid, label = np.zeros(shape, np.uint8), np.full(shape, NO_LABEL, np.uint8)
        for number, chip in enumerate(chips):
            header = self.headers[chip]
            window = np.s_[: header.height, number * edge : number * edge + header.width]
            image[:, *window], valid[window] = read_image(self.chips[chip], self.options.nodata)
            label[window] = self._numbers(self.chips[chip], header, values)
        has_label = (label != NO_LABEL).astype(np.uint8)
        columns = [np.s_[:, n * edge : (n + 1) * edge] for n in range(len(chips))]
        of_class = [np.bincount(label[part].ravel(), minlength=256)[: len(self.legend.classes)] for part in columns]
        encoded = [w.encode(a) for w, a in zip(writers, (image, valid, label, has_label), strict=True)]
        return PackedRegion(
            encoded,
            chips,
            np.array(of_class, np.int64).reshape(-1, len(self.legend.classes)),
            np.array([valid[part].sum(dtype=np.int64) for part in columns], np.int64),
            int(np.count_nonzero((image == 0) & (valid > 0))),
        )

    def _numbers(self, chip: ChipFile, header: ChipHeader, values: SourceValues) -> AnyArray:
        """The class numbers (y, x) of a chip, 255 where unlabelled."""
        if chip.mask is None:
            number = self.legend.classes.index(chip.label)
            return np.full((header.height, header.width), number, np.uint8)
        stored, values_of_bins, has_value = read_mask(chip)
        # As of a raster of `label`: edges of bins are physical values, other numbers are stored ones.
        numbers, ignored = values_of_bins if self.legend.bins else stored, np.isin(stored, self.legend.ignore)
        classified = self.legend.of_raster(numbers, has_value & ~ignored)
        without_class = numbers[has_value & ~ignored & (classified == NO_LABEL)]
        with self._lock:
            values.name = f"mask {chip.mask_source}"
            values.add(numbers, has_value, ignored)
            if not values.explains(without_class):
                self._unexplained.append(chip.mask_source)
        return classified

    def _check_values(self, values: SourceValues) -> None:
        """Raise BadInputError with the name of a mask, the values of all and a cure where one belongs to no class."""
        if masks := sorted(self._unexplained):
            others = f", as {len(masks) - 1} other{'s' * (len(masks) > 2)}," if len(masks) > 1 else ""
            values.name = f"mask {masks[0]}{others}"
        values.check()

    def _row(self, number: int, labelled: IntArray, valid: int) -> dict[str, Any]:
        """The row of a chip in the index; its class is the most frequent one."""
        chip, header = self.chips[number], self.headers[number]
        store, row, column = self.slots.slot(number)
        return {
            "id": chip.id,
            "source": chip.source,
            "store": f"chips-{store:04d}",
            "row": row,
            "column": column,
            "height": header.height,
            "width": header.width,
            "crs": header.crs,
            "transform": list(header.transform),
            "longitude": round(header.longitude, 9),
            "latitude": round(header.latitude, 9),
            "date": header.date,
            "class": self.legend.classes[int(labelled.argmax())] if labelled.any() else None,
            "labelled_pixels": int(labelled.sum()),
            "valid_pixels": valid,
        } | self._optional(chip)

    def _optional(self, chip: ChipFile) -> dict[str, Any]:
        """The columns of pairs, and of sets with groups."""
        columns: dict[str, Any] = {"mask": chip.mask_source} if chip.mask_source else {}
        if chip.window:
            rows, cols = chip.window
            columns["window"] = [cols.start, rows.start, cols.stop - cols.start, rows.stop - rows.start]
        if self.options.group:
            match = re.search(self.options.group, chip.id)
            columns["group"] = match[min(1, match.re.groups)] if match else None
        return columns


def _write_index(group: "zarr.Group", rows: list[dict[str, Any]]) -> None:
    """Write the rows of the index of a store's chips into it, as JSON texts, so that the store needs no other file."""
    array = group.create_array(
        INDEX_ARRAY, shape=(len(rows),), chunks=(len(rows),), dtype="string", dimension_names=("chip",)
    )
    array[:] = np.array([json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows], object)
    array.attrs["long_name"] = "place, source, class and counts of each chip, as JSON"


def write_chip_set(target: Path, chips: Sequence[ChipFile], legend: Legend, options: ImportOptions) -> dict[str, Any]:
    """Publish a folder with the stores `tiles/` and `labels/` and the index `chips.json`; return the index.

    Headers of all files are read first, then a row of slots at a time. Raises BadInputError for chips of different
    bands, data types or scales, for masks that do not fit, and for values that belong to no class, UsageError for a
    target with other files than an earlier import had.
    """
    refuse_foreign(target, folder=True)
    headers = [read_header(chip) for chip in chips]
    _check_forms(chips, headers, options)
    writer = ChipSetWriter(chips, headers, legend, options)
    with publish(target, folder=True) as draft:
        rows = [row for number in range(writer.slots.stores) for row in writer.write_store(draft, number)]
        without_label = [row["id"] for row in rows if not row["labelled_pixels"]]
        without_pixel = [row["id"] for row in rows if not row["valid_pixels"]]
        if len(without_label) == len(rows) or len(without_pixel) == len(rows):
            noun = "a labelled" if len(without_label) == len(rows) else "a valid"
            raise BadInputError(f"no chip has {noun} pixel; compare nodata, ignored values and classes with the files")
        index = {
            "slot": writer.slots.edge,
            "stores": [f"chips-{number:04d}" for number in range(writer.slots.stores)],
            "bands": list(writer.bands),
            "classes": list(legend.classes),
            "without_label": without_label,
            "without_valid_pixel": without_pixel,
            "chips": rows,
        }
        write_json(draft / INDEX, index)
    for kind, names in (("label", without_label), ("valid_pixel", without_pixel)):
        if names:
            listed = ", ".join(names[:NAMES_IN_LOG]) + (", …" if len(names) > NAMES_IN_LOG else "")
            log.warning("event=chips_without_%s count=%d chips=%r index=%s", kind, len(names), listed, INDEX)
    return index


def _check_forms(chips: Sequence[ChipFile], headers: Sequence[ChipHeader], options: ImportOptions) -> None:
    """Check that all chips have the bands, the data type and the scale of the first one."""
    first = headers[0]
    for chip, header in zip(chips, headers, strict=True):
        if header.form != first.form or (not options.bands and header.bands != first.bands):
            raise BadInputError(
                f"{chip.source} has {_form_text(header)}, but {chips[0].source} has {_form_text(first)}; "
                "all chips of a set have the same bands"
            )
    if options.bands and len(options.bands) != len(first.bands):
        raise BadInputError(f"--bands has {len(options.bands)} names, but the chips have {len(first.bands)} bands")
    if len(set(options.bands or first.bands)) < len(first.bands):
        raise BadInputError(f"{chips[0].source} has bands with the same name: {', '.join(first.bands)}; give --bands")


def _form_text(header: ChipHeader) -> str:
    count, dtype, (scale, offset) = header.form
    return f"{count} bands ({', '.join(header.bands)}) of {dtype} with scale {scale:g} and offset {offset:g}"
