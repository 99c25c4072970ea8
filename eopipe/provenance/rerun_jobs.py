"""The run of a crate, made again job by job, and every output compared."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from eopipe.contract import STAGES, Input, Option, Output, stage, to_args
from eopipe.errors import BY_CODE, BadInputError, EopipeError, IntegrityError, UsageError
from eopipe.provenance.crate_reader import Crate
from eopipe.provenance.jobs import Data, Job
from eopipe.provenance.record import record_path
from eopipe.provenance.redact import redact_for_record
from eopipe.publish import MANIFEST, digest, publish, read_json, write_json

TOLD = "rerun.json"
# A search of today may find other scenes; the list that it froze is in the crate.
FROZEN = "search"


@dataclass(frozen=True)
class Outcome:
    """What became of one output: whether it is the same, whether its inputs were, and which files differ."""

    job: Job
    port: str
    same: bool
    fair: bool
    files: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What differs, in words."""
        names = f" ({', '.join(self.files)})" if self.files else ""
        cause = "though its inputs are the same" if self.fair else "and so do inputs of it"
        return f"{self.job.title}: {self.port} differs{names}, {cause}"


@dataclass
class Again:
    """The run of a crate as it is made again; `have` is what there is by the content that the crate tells."""

    crate: Crate
    folder: Path
    have: dict[str, Path] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with what the crate holds; raises BadInputError where it tells of no job that can run again."""
        self.have |= self.crate.places
        self.jobs = [job for job in self.crate.jobs if job.stage != FROZEN and not job.failed]
        unknown = sorted({job.stage for job in self.jobs} - set(STAGES))
        if unknown:
            raise BadInputError(f"{self.crate.folder} tells of the stage {', '.join(unknown)}, which there is not here")
        if not self.jobs:
            raise BadInputError(
                f"{self.crate.folder} tells of no job that went well, so there is nothing to make again"
            )

    def open(self) -> None:
        """Make the folder; what this crate left there before is gone on with, anything else is left alone."""
        if self.crate.folder.resolve() in self.folder.resolve().parents:
            raise UsageError(f"{self.folder} lies in the crate, which stays as it is; choose another folder with --to")
        mark = self.folder / TOLD
        known = read_json(mark).get("crate") if mark.is_file() else None
        if self.folder.exists() and known != digest(self.crate.folder):
            raise UsageError(f"{self.folder} exists already and is not of this crate; choose another folder with --to")
        self._tell()

    def run(self, cores: int) -> None:
        """Run the jobs, stage after stage, and compare what each makes; tell every job."""
        with ThreadPoolExecutor(cores) as pool:
            for _, jobs in groupby(self.jobs, key=lambda job: job.stage):
                for outcomes in pool.map(self._again, list(jobs)):
                    for one in outcomes:
                        print(f"{one.job.title}: {one.port} identical" if one.same else one.words, flush=True)
                    self.outcomes += outcomes

    def close(self) -> int:
        """Say what it comes to; raises IntegrityError where something differs."""
        self._tell()
        differ = [one for one in self.outcomes if not one.same]
        if differ:
            first = next((one for one in differ if one.fair), differ[0])
            raise IntegrityError(
                f"{len(differ)} of {len(self.outcomes)} outputs differ from {self.crate.folder}; look first at "
                f"{first.words}"
            )
        print(f"identical: {len(self.outcomes)} outputs of {len(self.jobs)} jobs have the digests of the crate")
        return 0

    def _tell(self) -> None:
        rows = [{"job": o.job.title, "output": o.port, "same": o.same, "files": list(o.files)} for o in self.outcomes]
        with publish(self.folder / TOLD) as draft:
            write_json(draft, {"crate": digest(self.crate.folder), "outputs": rows})

    def _again(self, job: Job) -> list[Outcome]:
        room = self.folder / job.stage / job.label
        made = {data.port: room / data.name for data in job.record.outputs}
        words = self._words(job, made)
        if not made_before(made.values(), words):
            execute(job, words, self.folder / "logs" / f"{job.title.replace(' ', '-')}.log")
        fair = all(content(self.have[data.key]) in ("", data.sha256) for data in job.record.inputs)
        return [self._compare(job, data, made[data.port], fair=fair) for data in job.record.outputs]

    def _words(self, job: Job, made: dict[str, Path]) -> list[str]:
        """The command line of a job: settings as they were, without those that change only speed or place."""
        definition = stage(job.stage)
        words = [job.stage]
        for port in definition.of(Input):
            paths = [self.have[data.key] for data in job.record.inputs if data.port == port.name]
            words += to_args(port, tuple(paths))
        for port in definition.of(Output):
            words += to_args(port, made[port.name])
        settings = job.record.settings
        return words + [w for port in definition.of(Option) for w in to_args(port, settings.get(port.name))]

    def _compare(self, job: Job, data: Data, made: Path, *, fair: bool) -> Outcome:
        before, self.have[data.key] = self.have.get(data.key), made
        same = digest(made) == data.sha256
        files = () if same or before is None or not data.folder else differing(before, made)
        return Outcome(job, data.port, same, fair, files)


def made_before(made: Iterable[Path], words: Sequence[str]) -> bool:
    """Whether a run of before that was interrupted has made this already."""
    places = list(made)
    record = record_path(places[0])
    told_ = read_json(record) if record.is_file() and all(place.exists() for place in places) else {}
    return told_.get("status") == "completed" and told_.get("arguments") == redact_for_record(["eopipe", *words])


def execute(job: Job, words: Sequence[str], log: Path) -> None:
    """Run the command of a job; raises the error that it ended with."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        file.write(f"{shlex.join(['eopipe', *words])}\n")
        file.flush()
        done = subprocess.run([sys.executable, "-m", "eopipe", *words], stdout=file, stderr=file, check=False)
    if done.returncode:
        kind: Callable[[str], EopipeError] = BY_CODE.get(done.returncode, IntegrityError)
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1].removeprefix("error: ")
        raise kind(f"{job.title} ended with code {done.returncode}: {last} (see {log})")


def content(path: Path) -> str:
    """The digest of a file or a published folder, empty for another folder."""
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else ""


def differing(before: Path, made: Path) -> tuple[str, ...]:
    """The files of a folder that differ from those that the crate holds."""
    rows = [{(row["path"], row["sha256"]) for row in read_json(place / MANIFEST)["files"]} for place in (before, made)]
    return tuple(sorted({path for path, _ in rows[0] ^ rows[1]}))
