"""The lineage of one pixel of a map: its values, its label, its split and chips, and the scenes that cover it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.chip_set import NOT_A_PLACE
from eopipe.chips.splits import SPLITS, read_split
from eopipe.errors import UsageError
from eopipe.provenance.jobs import RecordedJob
from eopipe.provenance.lineage_graph import LineageGraph
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.store import NO_LABEL, Tiles

NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class MapPixel:
    """A pixel of a map: its row and column, its centre in the CRS of the map, and the cell of the map if it has one."""

    row: int
    column: int
    x: float
    y: float
    crs: str
    cell: str = ""

    def in_frame(self, frame: Frame) -> "MapPixel":
        """The pixel by its row and column in the frame of its run."""
        return replace(self, column=self.column + frame.cell(self.cell).column)

    @property
    def window(self) -> tuple[slice, slice]:
        return slice(self.row, self.row + 1), slice(self.column, self.column + 1)

    @property
    def text(self) -> str:
        pixel = f"pixel={self.column},{self.row} (column, row from 0)"
        return pixel if self.is_in_slot else f"{pixel}, centre {self.x:.10g},{self.y:.10g} in {self.crs}"

    @property
    def is_in_slot(self) -> bool:
        """Whether the map is of a store of a chip set."""
        return NOT_A_PLACE in self.crs


def locate(path: Path, position: str) -> MapPixel:
    """Find a pixel of a map: `x,y` in its CRS, or `pixel=column,row`.

    Raises UsageError for a position in another notation or outside of the map, BadInputError for a file that is not
    a map.
    """
    match = re.fullmatch(rf"(pixel=)?({NUMBER}),({NUMBER})", position)
    if not match:
        raise UsageError(f"{position} is not a position in a map; write #x,y in its CRS, or #pixel=column,row")
    with open_map(path) as file:
        transform, (height, width), crs = file.transform, file.shape, str(file.crs)
        cell = str(file.tags().get("cell", ""))
    first, second = float(match[2]), float(match[3])
    column, row = (first, second) if match[1] else ~transform * (first, second)
    if not (0 <= column < width and 0 <= row < height):
        raise UsageError(f"{position} is outside of {path.name}, which has {width} x {height} pixels in {crs}")
    x, y = transform * (int(column) + 0.5, int(row) + 0.5)
    return MapPixel(int(row), int(column), x, y, crs, cell)


def map_values(maps: list[Path], pixel: MapPixel) -> Iterator[str]:
    """The values of maps at the pixel, a line per band."""
    from rasterio.windows import Window

    for path in maps:
        with open_map(path) as file:
            classes = str(file.tags().get("classes", "")).split(", ")
            legend = dict(entry.split("=", 1) for entry in classes if "=" in entry)
            values = file.read(window=Window.from_slices(*pixel.window))[:, 0, 0]
            for name, value, scale in zip(file.descriptions, values, file.scales, strict=True):
                text = _value_text(value, file.nodata, scale, legend if name == "class" else {})
                yield f"{path.name}: {name} {text}"


def _value_text(value: Any, nodata: float | None, scale: float, legend: dict[str, str]) -> str:
    if value == nodata or np.isnan(value):
        return "has no data"
    name = legend.get(str(value))
    return f"{value} ({name})" if name else f"{float(value) * scale:.4g}"


def splits_of(chips: Path, pixel: MapPixel, stores: set[str]) -> Iterator[str]:
    """The splits that contain the pixel, and their chips that contain it; of a chip set only chips of these stores."""
    split = read_split(chips)
    edge, scenes, chosen = split.chip, split.scenes, split.samples
    if split.chip_set:
        numbers = [number for number, scene in enumerate(scenes) if f"{scene}.zarr" in stores]
        chosen = {name: rows[np.isin(rows[:, 0], numbers)] for name, rows in chosen.items()}
    pixel = pixel.in_frame(Frame.of_document(split.grid, str(chips)))
    samples = {name: _covering(chosen[name], edge, pixel) for name in SPLITS}
    names = [name for name in SPLITS if len(samples[name])]
    yield f"split: {' and '.join(names) or 'in no chip of train, val or test'}"
    for name in names:
        corners = sorted({(int(row), int(column)) for _, row, column in samples[name]})
        count = len({scenes[scene] for scene in samples[name][:, 0]})
        positions = "; ".join(f"row {row}, column {column}" for row, column in corners)
        yield f"  {name}: {len(samples[name])} chips of {edge} pixels, of {count} scenes, at {positions}"


def split_sizes(chips: Path) -> str:
    """The number of chips of each split."""
    samples = read_split(chips).samples
    return ", ".join(f"{len(samples[name])} {name}" for name in SPLITS)


def _covering(samples: Any, edge: int, pixel: MapPixel) -> Any:
    """The samples (scene, row, column) whose chip contains the pixel."""
    _, row, column = samples.T
    in_rows = (row <= pixel.row) & (pixel.row < row + edge)
    return samples[in_rows & (column <= pixel.column) & (pixel.column < column + edge)]


def label_at(labels: Path, pixel: MapPixel) -> str:
    """The label of the pixel."""
    store = Tiles(labels)
    value = store.read("label", *pixel.in_frame(store.frame).window)[0, 0]
    if value.dtype.kind == "f":
        return f"label: {value:.4g}" if np.isfinite(value) else "label: none"
    return f"label: {store.names[value]}" if value != NO_LABEL else "label: none"


def valid_scenes(graph: LineageGraph, job: RecordedJob, pixel: MapPixel) -> dict[str, bool]:
    """Whether each tile store that a map was made from is valid at the pixel, by its name; only stores that exist."""
    stores = [data for data in job.record.inputs if data.port == "tiles" and data.key in graph.paths]
    opened = {data.name: Tiles(graph.paths[data.key]) for data in stores}
    return {n: bool(store.read("valid", *pixel.in_frame(store.frame).window)[0, 0]) for n, store in opened.items()}
