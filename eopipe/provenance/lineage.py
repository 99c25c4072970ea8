"""`eopipe lineage`: from a file, or a pixel of a map, back to chips, scenes, code and settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from eopipe.contract import STAGES, Argument, Option, stage
from eopipe.errors import BadInputError
from eopipe.provenance.jobs import RecordedData, RecordedJob
from eopipe.provenance.lineage_graph import LineageGraph, lineage_of
from eopipe.provenance.pixel_lineage import MapPixel, label_at, locate, map_values, split_sizes, splits_of, valid_scenes
from eopipe.scenes.item import day_text
from eopipe.text_files import read_json

# Relations of a STAC Item's links that lead to its origin, the first one preferred.
ORIGIN_LINKS = ("self", "derived_from", "via")
# If the user has more inputs, as in a chip set, the first ones are listed.
LISTED_INPUTS = 50
Jobs = tuple[RecordedJob, ...]


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
        yield f"with the chips of {chips.name}: {split_sizes(chips)}"
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
    code = " ".join(filter(None, (f"eopipe {first.record.version}", first.record.software.get("git", ""))))
    yield f"{first.stage:<11} {max(job.record.end for job in jobs)}, {code}{count}"
    settings = " ".join(f"{key}={_value_text(value)}" for key, value in _changed_settings(first))
    if settings:
        yield f"{'':<11} {settings}"


def _changed_settings(job: RecordedJob) -> Iterator[tuple[str, Any]]:
    for port in stage(job.stage).of(Option):
        default = list(port.default) if port.is_list and not port.required else port.default
        if port.name in job.settings and job.settings[port.name] != default:
            yield port.name, job.settings[port.name]


def _value_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


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
    maker = graph.maker(data)
    folder = graph.path(maker, "items") if maker else None
    return folder / data.name if folder and (folder / data.name).is_file() else None


def _describe_user_inputs(graph: LineageGraph, upstream: Jobs) -> Iterator[str]:
    """The inputs that no job made: labels, catalogs, areas."""
    user_inputs = {data.key: data for job in upstream for data in job.record.inputs if graph.maker(data) is None}
    if user_inputs:
        yield "from inputs of the user"
    for data in sorted(user_inputs.values(), key=lambda data: data.name)[:LISTED_INPUTS]:
        content = f"sha256 {data.sha256}" if data.sha256 else f"a folder of {data.files} files, {data.bytes} bytes"
        yield f"    {data.path or data.name}  {content}"
    if (omitted := len(user_inputs) - LISTED_INPUTS) > 0:
        yield f"    and {omitted} more"
