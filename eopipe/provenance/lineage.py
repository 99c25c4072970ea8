"""`eopipe lineage`: from a file, or a pixel of a map, back to chips, scenes, code and settings."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from eopipe.chips.chip_set import NOT_A_PLACE
from eopipe.chips.splits import SPLITS, read_split
from eopipe.contract import STAGES, Argument, Option, stage
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.provenance.crate_reader import is_crate, read_crate
from eopipe.provenance.jobs import RecordedData, RecordedJob, read_jobs
from eopipe.provenance.record import record_path
from eopipe.publish import MANIFEST, RECORD, digest, is_draft, manifest_rows, size
from eopipe.scenes.item import day_text
from eopipe.text_files import read_json
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import open_map, read_window
from eopipe.tiles.store import NO_LABEL, Tiles

# Relations of a STAC Item's links that lead to its origin, the first one preferred.
ORIGIN_LINKS = ("self", "derived_from", "via")
# If the user has more inputs, as in a chip set, the first ones are listed.
LISTED_INPUTS = 50
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
# A result is in the folder of results, or at most two folders deeper.
DEPTH = 3
# Only the size of a larger file is compared; eopipe verify compares its digest.
LARGEST_DIGESTED = 1 << 26
Jobs = tuple[RecordedJob, ...]


@dataclass(frozen=True)
class LineageGraph:
    """The jobs of a run, and the paths of their inputs and outputs by content, as far as they exist."""

    jobs: tuple[RecordedJob, ...]
    paths: dict[str, Path]

    @cached_property
    def makers(self) -> dict[str, RecordedJob]:
        """The job that made each content but inputs of the user; items of the frozen list are files of the search."""
        makers = {data.key: job for job in self.jobs for data in job.record.outputs}
        for job in self.jobs:
            for data in job.record.outputs if job.stage == "search" else ():
                folder = self.paths.get(data.key, Path())
                if data.folder and (folder / MANIFEST).is_file():
                    makers |= {sha256: job for _, sha256 in manifest_rows(folder).values()}
        return makers

    def upstream(self, last: RecordedJob) -> tuple[RecordedJob, ...]:
        """A job and all jobs that it depends on, the latest stage first."""
        reached, pending = {id(last)}, [last]
        while pending:
            for data in pending.pop().record.inputs:
                maker = self.makers.get(data.key)
                if maker and id(maker) not in reached:
                    reached.add(id(maker))
                    pending.append(maker)
        return tuple(job for job in reversed(self.jobs) if id(job) in reached)

    def path(self, job: RecordedJob, port: str) -> Path | None:
        """The path of an output of a job, if it exists."""
        return next((self.paths.get(data.key) for data in job.record.outputs if data.port == port), None)


def lineage_of(path: Path) -> tuple[LineageGraph, RecordedJob, RecordedData]:
    """The run that a file or folder belongs to, the job that made it, and its recorded content.

    Raises BadInputError if no record or crate describes how it was made, IntegrityError if its content is not the
    recorded one.
    """
    if not path.exists():
        raise BadInputError(f"{path} does not exist; give a file or folder that eopipe made")
    absolute = path.resolve()
    folder = next((each for each in (absolute, *absolute.parents) if is_crate(each)), None)
    if folder:
        crate = read_crate(folder)
        graph = LineageGraph(crate.jobs, crate.paths)
    else:
        records = _records_for(absolute)
        rows = [(record.parent, row) for record in records for row in read_json(record)["outputs"]]
        # A store in an output has a path from there.
        placed = ((home / str(row.get("path", row["name"])), row) for home, row in rows)
        graph = LineageGraph(read_jobs(records), {row["sha256"]: place for place, row in placed if place.exists()})
    keys = {recorded.resolve(): key for key, recorded in graph.paths.items()}
    # A file inside of a published folder was made with the folder.
    recorded = next((parent for parent in (absolute, *absolute.parents) if parent in keys), absolute)
    for job in graph.jobs:
        for data in job.record.outputs:
            if data.key == keys.get(recorded):
                _check_content(path, recorded, data)
                return graph, job, data
    raise BadInputError(f"no recorded job made {path}; give an output that a run record or crate describes")


def _check_content(path: Path, recorded: Path, data: RecordedData) -> None:
    is_large = recorded.is_file() and recorded.stat().st_size > LARGEST_DIGESTED
    if size(recorded)[0] != data.bytes if is_large else digest(recorded) != data.sha256:
        raise IntegrityError(f"{path} differs from its record; run eopipe verify to see what changed")


def _records_for(path: Path) -> list[Path]:
    """The run records of the results that a path belongs to; a chip set has the record of its import beside it."""
    sets = [record for folder in (path, *path.parents[:DEPTH]) if _is_of("import", record := record_path(folder))]
    return sets[:1] or sorted(_records(_results_folder(path)))


def _results_folder(path: Path) -> Path:
    """The folder of results: the nearest with the run record of a search, the first stage, else the path's.

    The run of a chip set begins with its split; a fold has one too, further down.
    """
    folders = path.parents[:DEPTH]
    for first, candidates in (("search", folders), ("split", folders[::-1])):
        for folder in candidates:
            if any(_is_of(first, record) for record in folder.glob(f"*{RECORD}")):
                return folder
    if any(path.parent.glob(f"*{RECORD}")):
        return path.parent
    raise BadInputError(
        f"no run record in the folder of {path.name} or above it; give a result in its folder of results or in a crate"
    )


def _is_of(name: str, record: Path) -> bool:
    try:
        return bool(read_json(record)["stage"] == name)
    except (BadInputError, KeyError, TypeError):
        return False


def _records(root: Path) -> Iterator[Path]:
    """All run records below a folder, without searching inside of published folders."""
    for folder, subfolders, files in os.walk(root):
        if MANIFEST in files:
            subfolders.clear()
        else:
            subfolders[:] = [name for name in subfolders if not is_draft(name)]
            yield from (Path(folder, name) for name in files if name.endswith(RECORD))


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


def lineage(
    path: Annotated[
        str,
        Argument("a result; for a map #x,y in its CRS, or #pixel=column,row", positional=True, value="PATH[#POSITION]"),
    ],
) -> None:
    """Show how a result was made, from the run records beside it or the crate that contains it."""
    file, _, position = path.partition("#")
    print("\n".join(_describe(Path(file), position)))


def _describe(path: Path, position: str) -> Iterator[str]:
    graph, job, data = lineage_of(path)
    upstream = graph.upstream(job)
    yield f"{path}"
    yield f"  sha256 {data.sha256}"
    validity: dict[str, bool] = {}
    if position:
        pixel = locate(path, position)
        yield pixel.text
        if job.stage != "predict":
            raise BadInputError(f"{path} was made by {job.stage}; only pixels of maps that predict made have a lineage")
        validity = valid_scenes(graph, job, pixel)
        yield from (f"  {line}" for line in _describe_pixel(graph, job, upstream, pixel, validity))
    yield "made by, latest first"
    for name in sorted({job.stage for job in upstream}, key=STAGES.index, reverse=True):
        yield from (f"  {line}" for line in _describe_stage([job for job in upstream if job.stage == name]))
    for chips in _outputs(graph, upstream, "split", "chips"):
        samples = read_split(chips).samples
        yield f"with the chips of {chips.name}: {', '.join(f'{len(samples[name])} {name}' for name in SPLITS)}"
    yield from _describe_scenes(graph, upstream, {name for name, is_valid in validity.items() if is_valid})
    yield from _describe_user_inputs(graph, upstream)


def _outputs(graph: LineageGraph, jobs: Jobs, name: str, port: str) -> list[Path]:
    """The outputs of one port of all jobs of a stage, as far as they exist."""
    return [path for job in jobs if job.stage == name and (path := graph.path(job, port))]


def _describe_pixel(
    graph: LineageGraph, job: RecordedJob, upstream: Jobs, pixel: MapPixel, validity: dict[str, bool]
) -> Iterator[str]:
    maps = [path for port in ("classes", "probabilities") if (path := graph.path(job, port))]
    yield from map_values(maps, pixel)
    labels = _outputs(graph, upstream, "label", "labels")
    if len(labels) == 1:
        yield label_at(labels[0], pixel)
    for chips in _outputs(graph, upstream, "split", "chips"):
        yield from splits_of(chips, pixel, {data.name for data in job.record.inputs if data.port == "tiles"})
    count = sum(data.port == "tiles" for data in job.record.inputs)
    if pixel.is_in_slot:
        store = next(data.name for data in job.record.inputs if data.port == "tiles")
        yield f"in a slot of {store}: chips.json of the chip set names the chip that has this row and column"
    elif validity:
        yield f"valid in {sum(validity.values())} of {count} scenes"
    else:
        yield "its tile stores are not available here, so the scenes that are valid at the pixel are unknown"


def _describe_stage(jobs: list[RecordedJob]) -> Iterator[str]:
    """The jobs of a stage: end time, code, and the settings that differ from their defaults."""
    first = jobs[0]
    count = f", {len(jobs)} jobs" if len(jobs) > 1 else ""
    yield f"{first.stage:<11} {max(job.record.end for job in jobs)}, eopipe {first.record.code}{count}"
    texts = ((k, ",".join(map(str, v)) if isinstance(v, list) else v) for k, v in _changed_settings(first))
    settings = " ".join(f"{key}={text}" for key, text in texts)
    if settings:
        yield f"{'':<11} {settings}"


def _changed_settings(job: RecordedJob) -> Iterator[tuple[str, Any]]:
    for port in stage(job.stage).of(Option):
        default = list(port.default) if port.is_list and not port.required else port.default
        if port.name in job.settings and job.settings[port.name] != default:
            yield port.name, job.settings[port.name]


def _describe_scenes(graph: LineageGraph, upstream: Jobs, valid: set[str]) -> Iterator[str]:
    """The scenes that a result was made from; those that are valid at the pixel are marked."""
    fetched = [job for job in upstream if job.stage == "fetch"]
    mark = "; * is valid at the pixel" if valid else ""
    if not fetched:
        return
    yield f"from {len(fetched)} scene{'' if len(fetched) == 1 else 's'}{mark}"
    for job in sorted(fetched, key=lambda job: job.label):
        item = next(data for data in job.record.inputs if data.port == "item")
        name = Path(item.name).stem
        yield f"  {'*' if {f'{name}.zarr', name} & valid else ' '} {name}  {_describe_item(graph, item)}"


def _describe_item(graph: LineageGraph, data: RecordedData) -> str:
    """Date, collection and URL of a scene, from its frozen item."""
    path = graph.paths.get(data.key) or _frozen_item(graph, data)
    if path is None:
        return f"sha256 of its item {data.sha256}"
    item = read_json(path)
    properties = item["properties"]
    date = day_text(properties)
    links = [link["href"] for rel in ORIGIN_LINKS for link in item.get("links", []) if link.get("rel") == rel]
    urls = [href.partition("?")[0] for href in links if href.startswith(("http://", "https://"))]
    return "  ".join(filter(None, (date, str(item.get("collection") or ""), *urls[:1])))


def _frozen_item(graph: LineageGraph, data: RecordedData) -> Path | None:
    """The file of an item in the frozen list."""
    maker = graph.makers.get(data.key)
    folder = graph.path(maker, "items") if maker else None
    return folder / data.name if folder and (folder / data.name).is_file() else None


def _describe_user_inputs(graph: LineageGraph, upstream: Jobs) -> Iterator[str]:
    """The inputs that no job made: labels, catalogs, areas."""
    user_inputs = {data.key: data for job in upstream for data in job.record.inputs if data.key not in graph.makers}
    if user_inputs:
        yield "from inputs of the user"
    for data in sorted(user_inputs.values(), key=lambda data: data.name)[:LISTED_INPUTS]:
        yield f"    {data.path or data.name}  {data.text}"
    if (omitted := len(user_inputs) - LISTED_INPUTS) > 0:
        yield f"    and {omitted} more"


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
    for path in maps:
        with open_map(path) as file:
            classes = str(file.tags().get("classes", "")).split(", ")
            legend = dict(entry.split("=", 1) for entry in classes if "=" in entry)
            values = read_window(file, *pixel.window)[:, 0, 0]
            for name, value, scale in zip(file.descriptions, values, file.scales, strict=True):
                text = _pixel_text(value, file.nodata, scale, legend if name == "class" else {})
                yield f"{path.name}: {name} {text}"


def _pixel_text(value: Any, nodata: float | None, scale: float, legend: dict[str, str]) -> str:
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
