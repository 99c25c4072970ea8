"""How files came from files: the jobs of a run, linked by the content that went from one to the next."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from eopipe.errors import BadInputError, IntegrityError
from eopipe.provenance.crate_reader import is_crate, read_crate
from eopipe.provenance.jobs import Data, Job, read_jobs
from eopipe.publish import MANIFEST, RECORD, digest, is_draft, read_json, size

# A result lies in the folder of results or at most in a folder of a folder of it.
DEPTH = 3
# Larger files are known by their size; eopipe verify reads them.
QUICK = 1 << 26


@dataclass(frozen=True)
class Trail:
    """The jobs of a run, and where their outputs lie, by content, as far as they are there."""

    jobs: tuple[Job, ...]
    places: dict[str, Path]

    @cached_property
    def _makers(self) -> dict[str, Job]:
        """Who made what; the files of the frozen list are parts of what the search made."""
        made = {data.key: job for job in self.jobs for data in job.record.outputs}
        for job in self.jobs:
            for data in job.record.outputs if job.stage == "search" else ():
                listing = self.places.get(data.key, Path()) / MANIFEST
                if data.folder and listing.is_file():
                    made |= {row["sha256"]: job for row in read_json(listing)["files"]}
        return made

    def maker(self, data: Data) -> Job | None:
        """The job that made something; None for what a person gave."""
        return self._makers.get(data.key)

    def behind(self, last: Job) -> tuple[Job, ...]:
        """A job and all that it came from, the latest stage first."""
        found, rest = {id(last)}, [last]
        while rest:
            for data in rest.pop().record.inputs:
                maker = self.maker(data)
                if maker and id(maker) not in found:
                    found.add(id(maker))
                    rest.append(maker)
        return tuple(job for job in reversed(self.jobs) if id(job) in found)

    def place(self, job: Job, port: str) -> Path | None:
        """Where an output of a job lies, if it is there."""
        return next((self.places.get(data.key) for data in job.record.outputs if data.port == port), None)


def trail_of(path: Path) -> tuple[Trail, Job, Data]:
    """The run that a file or folder comes from, the job that made it, and its content as that told it.

    Raises BadInputError where nobody told how it was made, IntegrityError where it is not what was made.
    """
    if not path.exists():
        raise BadInputError(f"there is no {path}; give a file or folder that eopipe made")
    here = path.resolve()
    crate = next((folder for folder in (here, *here.parents) if is_crate(folder)), None)
    trail = _of_crate(crate) if crate else _of_results(_root(here))
    known = {place.resolve(): key for key, place in trail.places.items()}
    # What lies in a published folder came with it.
    place = next((p for p in (here, *here.parents) if p in known), here)
    for job in trail.jobs:
        for data in job.record.outputs:
            if data.key == known.get(place):
                _check(path, place, data)
                return trail, job, data
    raise BadInputError(f"no job that is known here made {path}; give something that a run record or crate tells of")


def _check(path: Path, place: Path, data: Data) -> None:
    large = place.is_file() and place.stat().st_size > QUICK
    if size(place)[0] != data.bytes if large else digest(place) != data.sha256:
        raise IntegrityError(f"{path} is not what its record tells; eopipe verify says what changed")


def _of_crate(folder: Path) -> Trail:
    crate = read_crate(folder)
    return Trail(crate.jobs, crate.places)


def _root(here: Path) -> Path:
    """The folder of results: the nearest with the record of a search, from which all came, else that of the path."""
    for folder in here.parents[:DEPTH]:
        if any(_searched(record) for record in folder.glob(f"*{RECORD}")):
            return folder
    if any(here.parent.glob(f"*{RECORD}")):
        return here.parent
    raise BadInputError(
        f"there is no run record beside or above {here.name}; give a result where it was made, or as it lies in a crate"
    )


def _searched(record: Path) -> bool:
    try:
        return bool(read_json(record)["stage"] == "search")
    except (BadInputError, KeyError, TypeError):
        return False


def _of_results(root: Path) -> Trail:
    records = sorted(_records(root))
    rows = [(record.parent / row["name"], row) for record in records for row in read_json(record)["outputs"]]
    places = {row["sha256"]: place for place, row in rows if place.exists()}
    return Trail(read_jobs(records), places)


def _records(root: Path) -> Iterator[Path]:
    """All run records below a folder, without looking into what was published."""
    for place, inside, files in os.walk(root):
        if MANIFEST in files:
            inside.clear()
        else:
            inside[:] = [name for name in inside if not is_draft(name)]
            yield from (Path(place, name) for name in files if name.endswith(RECORD))
