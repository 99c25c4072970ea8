"""`eopipe lineage`: from a file, or a pixel of a map, back to chips, scenes, code and settings."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eopipe.contract import STAGES, Option, stage
from eopipe.errors import BadInputError
from eopipe.provenance import pixel_lineage as pixel
from eopipe.provenance.jobs import Data, Job
from eopipe.provenance.lineage_graph import Trail, trail_of
from eopipe.publish import read_json

LEADS = ("self", "derived_from", "via")


def lineage(words: list[str]) -> int:
    """Tell how something came to be; nothing is written."""
    given = _parser().parse_args(words)
    path, _, where = given.path.partition("#")
    print("\n".join(_told(Path(path), where)))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="eopipe lineage",
        description="Tell how a result came to be, from the run records beside it or the crate that it lies in.",
    )
    made.add_argument("path", metavar="PATH[#PLACE]", help="a result; of a map #x,y in its CRS, or #pixel=column,row")
    return made


def _told(path: Path, where: str) -> Iterator[str]:
    trail, job, data = trail_of(path)
    behind = trail.behind(job)
    yield f"{path}"
    yield f"  sha256 {data.sha256}"
    shown = None
    if where:
        at = pixel.spot(path, where)
        yield at.words
        if job.stage != "predict":
            raise BadInputError(f"{path} was made by {job.stage}; only the pixels of a map by predict can be followed")
        shown = pixel.seen(trail, job, at)
        yield from (f"  {line}" for line in _pixel(trail, job, behind, at, shown))
    yield "made by, the latest first"
    for name in sorted({one.stage for one in behind}, key=STAGES.index, reverse=True):
        yield from (f"  {line}" for line in _stage([one for one in behind if one.stage == name]))
    splits = [place for one in behind if one.stage == "split" and (place := trail.place(one, "chips"))]
    yield from (f"by way of the chips of {place.name}: {pixel.dealt(place)}" for place in splits)
    yield from _scenes(trail, behind, {name for name, there in (shown or {}).items() if there})
    yield from _given(trail, behind)


def _pixel(trail: Trail, job: Job, behind: tuple[Job, ...], at: pixel.Spot, shown: dict[str, bool]) -> Iterator[str]:
    yield from pixel.values([p for port in ("classes", "probabilities") if (p := trail.place(job, port))], at)
    labels = [p for one in behind if one.stage == "label" and (p := trail.place(one, "labels"))]
    if len(labels) == 1:
        yield pixel.truth(labels[0], at)
    for one in behind:
        chips = trail.place(one, "chips") if one.stage == "split" else None
        if chips:
            yield from pixel.role(chips, at)
    many = sum(data.port == "tiles" for data in job.record.inputs)
    yield f"shown by {sum(shown.values())} of {many} images" if shown else "its tiles are not here, which tell more"


def _stage(jobs: list[Job]) -> Iterator[str]:
    """The jobs of a stage: when, by which code, and the settings that are not the defaults."""
    first = jobs[0]
    many = f", {len(jobs)} jobs" if len(jobs) > 1 else ""
    code = " ".join(filter(None, (f"eopipe {first.record.version}", first.record.software.get("git", ""))))
    yield f"{first.stage:<11} {max(job.record.end for job in jobs)}, {code}{many}"
    settings = " ".join(f"{key}={_shown(value)}" for key, value in _unusual(first))
    if settings:
        yield f"{'':<11} {settings}"


def _unusual(job: Job) -> Iterator[tuple[str, Any]]:
    for port in stage(job.stage).of(Option):
        default = list(port.default) if port.is_list and not port.required else port.default
        if port.name in job.settings and job.settings[port.name] != default:
            yield port.name, job.settings[port.name]


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _scenes(trail: Trail, behind: tuple[Job, ...], shown: set[str]) -> Iterator[str]:
    """The scenes behind a result; those that show the pixel are marked."""
    fetched = [job for job in behind if job.stage == "fetch"]
    yield f"from {len(fetched)} scene{'' if len(fetched) == 1 else 's'}{'; * shows the pixel' * bool(shown)}"
    for job in sorted(fetched, key=lambda job: job.label):
        item = next(data for data in job.record.inputs if data.port == "item")
        name = Path(item.name).stem
        mark = "*" if {f"{name}.zarr", name} & shown else " "
        yield f"  {mark} {name}  {_item(trail, item)}"


def _item(trail: Trail, data: Data) -> str:
    """Date, collection and address of a scene, as its frozen item tells them."""
    place = trail.places.get(data.key) or _frozen(trail, data)
    if place is None:
        return f"sha256 of its item {data.sha256}"
    item = read_json(place)
    told = item["properties"]
    when = str(told.get("datetime") or told.get("start_datetime") or "")[:10]
    links = [link["href"] for lead in LEADS for link in item.get("links", []) if link.get("rel") == lead]
    web = [href.partition("?")[0] for href in links if href.startswith(("http://", "https://"))]
    return "  ".join(filter(None, (when, str(item.get("collection") or ""), *web[:1])))


def _frozen(trail: Trail, data: Data) -> Path | None:
    """The file of an item in the frozen list."""
    maker = trail.maker(data)
    folder = trail.place(maker, "items") if maker else None
    return folder / data.name if folder and (folder / data.name).is_file() else None


def _given(trail: Trail, behind: tuple[Job, ...]) -> Iterator[str]:
    """What a person gave: labels, catalogs, areas."""
    known = {data.key: data for job in behind for data in job.record.inputs if trail.maker(data) is None}
    if known:
        yield "from what was given"
    for data in sorted(known.values(), key=lambda data: data.name):
        about = f"sha256 {data.sha256}" if data.sha256 else f"a folder of {data.files} files, {data.bytes} bytes"
        yield f"    {data.name}  {about}"
