"""The lineage of results: the jobs of a run, linked by the content that passed from one to the next."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eopipe.errors import BadInputError, IntegrityError
from eopipe.provenance.crate_reader import is_crate, read_crate
from eopipe.provenance.jobs import RecordedData, RecordedJob, read_jobs
from eopipe.provenance.record import record_path
from eopipe.publish import MANIFEST, RECORD, digest, is_draft, size
from eopipe.text_files import read_json

# A result is in the folder of results, or at most two folders deeper.
DEPTH = 3
# Only the size of a larger file is compared; eopipe verify compares its digest.
LARGEST_DIGESTED = 1 << 26


@dataclass(frozen=True)
class LineageGraph:
    """The jobs of a run, and the paths of their inputs and outputs by content, as far as they exist."""

    jobs: tuple[RecordedJob, ...]
    paths: dict[str, Path]

    @cached_property
    def _makers(self) -> dict[str, RecordedJob]:
        """The job that made each content; the items of the frozen list are files in the output of the search."""
        makers = {data.key: job for job in self.jobs for data in job.record.outputs}
        for job in self.jobs:
            for data in job.record.outputs if job.stage == "search" else ():
                manifest = self.paths.get(data.key, Path()) / MANIFEST
                if data.folder and manifest.is_file():
                    makers |= {row["sha256"]: job for row in read_json(manifest)["files"]}
        return makers

    def maker(self, data: RecordedData) -> RecordedJob | None:
        """The job that made a file or folder; None for an input of the user."""
        return self._makers.get(data.key)

    def upstream(self, last: RecordedJob) -> tuple[RecordedJob, ...]:
        """A job and all jobs that it depends on, the latest stage first."""
        reached, pending = {id(last)}, [last]
        while pending:
            for data in pending.pop().record.inputs:
                maker = self.maker(data)
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
    for stage, candidates in (("search", folders), ("split", folders[::-1])):
        for folder in candidates:
            if any(_is_of(stage, record) for record in folder.glob(f"*{RECORD}")):
                return folder
    if any(path.parent.glob(f"*{RECORD}")):
        return path.parent
    raise BadInputError(
        f"no run record in the folder of {path.name} or above it; give a result in its folder of results or in a crate"
    )


def _is_of(stage: str, record: Path) -> bool:
    try:
        return bool(read_json(record)["stage"] == stage)
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
