"""`eopipe rerun`: run the jobs of a crate again, each behind its inputs, and compare every digest."""

import glob
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import yaml

from eopipe import __version__
from eopipe.contract import STAGES, Argument, Input, Knob, Option, Output, stage, to_args
from eopipe.errors import BY_CODE, BadInputError, EopipeError, IntegrityError, RefusedError, UsageError, some_of
from eopipe.models.model_files import installed_version, is_permitted, permission_message
from eopipe.models.model_folder import read_model_card
from eopipe.provenance.crate_reader import RunCrate, crate_damages, read_crate
from eopipe.provenance.jobs import RecordedData, RecordedJob
from eopipe.provenance.record import commit, record_path
from eopipe.provenance.redact import redact_for_record, strings
from eopipe.publish import content_digest, damage_message, digest, manifest_rows, publish, published_digest, verify
from eopipe.reporting.wording import plural
from eopipe.text_files import parse_yaml, read_json, write_json

SUMMARY = "rerun.json"
# These stages do not run again. A search today may return other scenes: its result is in the crate. A chip set is an
# input of the run, as it was packed.
FROZEN_STAGES = ("search", "import")


def rerun(
    crate_folder: Annotated[Path, Argument("folder that eopipe crate made", positional=True, value="CRATE")],
    to: Annotated[Path | None, Argument("new folder for the outputs [CRATE-again]")] = None,
    data: Annotated[
        Path, Argument("folder with inputs that are not in the crate: labels, catalogs, or the results of the run")
    ] = Path(),
    only: Annotated[
        tuple[str, ...], Argument("stages to rerun, or titles of jobs, from the crate and what is in --data [all]")
    ] = (),
    cores: Annotated[int | None, Argument("concurrent jobs [all cores]", ge=1)] = None,
    allow_code: Annotated[
        str | None,
        Argument(
            "permission to run the code of a custom model: the train.architecture of the crate, such as file.py:Class",
            value="CODE",
        ),
    ] = None,
    other_code: Annotated[bool, Argument("allow another version or commit of eopipe than the crate's")] = False,
) -> int:
    """Rerun the jobs of a crate in a new folder, with its frozen scenes and settings, and compare every digest.

    The crate decides what is downloaded and computed; outputs are in the new folder, and code of a custom model runs
    with --allow-code only.
    """
    crate = read_crate(crate_folder)
    verify(crate.folder)
    if damages := crate_damages(crate.folder):
        raise IntegrityError(damage_message(crate.folder, damages))
    check_code(crate, allow_other=other_code)
    folder = crate.folder.resolve()
    jobs = CrateRerun(crate, to or folder.with_name(f"{folder.name}-again"), allow_code, only)
    jobs.available |= find_user_inputs(crate, data, jobs.jobs)
    jobs.check_permission()
    jobs.open()
    for line in environment_differences(crate):
        print(line)
    jobs.run(cores or len(os.sched_getaffinity(0)))
    return jobs.close()


def check_code(crate: RunCrate, *, allow_other: bool) -> None:
    """Raise UsageError if the crate was made by another version of eopipe, or from another commit, than this one."""
    versions, installed = sorted({job.record.version for job in crate.jobs}), commit().rstrip("+")
    commits = sorted({name.rstrip("+") for name in crate.commits})
    difference = ""
    if versions != [__version__]:
        difference = f"eopipe {' and '.join(versions)}, and this is {__version__}; install that one"
    elif commits and installed and commits != [installed]:
        difference = f"the code of commit {' and '.join(commits)}, and this is {installed}; check that one out"
    if difference and not allow_other:
        raise UsageError(f"{crate.folder} was made by {difference}, or compare with --other-code")


def environment_differences(crate: RunCrate) -> Iterator[str]:
    """Differences of libraries and code that may explain a different digest, one per line."""
    versions: dict[str, set[str]] = {}
    for job in crate.jobs:
        for name, number in job.record.software.items():
            versions.setdefault(name, set()).add(number)
    for name, recorded in sorted(versions.items()):
        installed = platform.python_version() if name == "python" else installed_version(name)
        if recorded != {installed}:
            yield f"note: {name} was {' and '.join(sorted(recorded))} and is {installed or 'not installed'} here"
    if any(name.endswith("+") for name in crate.commits):
        yield "note: the run was made from changed files (+ behind its commit), which are not in any commit"
    if commit().endswith("+"):
        yield "note: files of this checkout are changed, so it is not the code of its commit"


def find_user_inputs(crate: RunCrate, folder: Path, jobs: Sequence[RecordedJob]) -> dict[str, Path]:
    """Find the inputs of jobs that are not in the crate and that none of these jobs makes, by their content.

    Searches at the paths that the crate's config and the jobs name, then for the file name in a folder and in its
    subfolders. Raises BadInputError that lists all that are not found, and IntegrityError for a damaged folder.
    """
    available = crate.paths.keys() | {data.key for job in jobs for data in job.record.outputs}
    missing = {data.key: data for job in jobs for data in job.record.inputs if data.key not in available}
    named = [folder / text for text in _config_strings(crate)]
    # The model in the crate contains the code of a custom model.
    copies = {key: sorted(crate.folder.rglob(glob.escape(data.name))) for key, data in missing.items()}
    paths = {key: _find(data, folder, [*named, *copies[key]]) for key, data in missing.items()}
    not_found = {key: missing[key] for key, path in paths.items() if path is None}
    if not_found:
        names = "; ".join(f"{data.name} ({data.text})" for data in not_found.values())
        rows = ((job.stage, row.key) for job in crate.jobs for row in job.record.outputs)
        makers = dict.fromkeys(name for name, key in rows if key in not_found and name not in FROZEN_STAGES)
        cure = f", as the results of the run, or add to --only what makes them: {' '.join(makers)}" if makers else ""
        raise BadInputError(
            f"{crate.folder} does not contain these inputs: {names}; put them into {folder} or give --data{cure}"
        )
    return {key: path for key, path in paths.items() if path}


def _config_strings(crate: RunCrate) -> list[str]:
    """Every string of the crate's config. Raises BadInputError for a config that is not YAML."""
    try:
        return [*strings(parse_yaml(crate.config.read_text(encoding="utf-8")))] if crate.config else []
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"{crate.config}, the config of the crate, is not valid YAML: {reason}") from error


def _find(data: RecordedData, folder: Path, named: Sequence[Path]) -> Path | None:
    # The folder itself too: `--data sample` for a catalog named sample.
    candidates = [path for path in (*named, folder / data.path, folder.resolve()) if path.name == data.name]
    # Results have models of trials two folders down; a folder without a digest may be any of its name.
    depths = ("", "*/", "*/*/") if data.sha256 else ("", "*/")
    below = (path for depth in depths for path in sorted(folder.glob(depth + glob.escape(data.name))))
    return next((path for path in chain(candidates, below) if _has_content(path, data)), None)


def _has_content(path: Path, data: RecordedData) -> bool:
    """Whether the file or folder at a path has the recorded content."""
    if path.is_file():
        return not data.folder and path.stat().st_size == data.bytes and digest(path) == data.sha256
    if not (path.is_dir() and data.folder):
        return False
    # A catalog has no digest of its own; the assets that are fetched from it do.
    sha256 = published_digest(path)
    has_content = not data.sha256 or (sha256 or content_digest(path)) == data.sha256
    if sha256 and has_content:
        # The digest is the manifest's, and a file may have changed since.
        verify(path)
    return has_content


@dataclass(frozen=True)
class OutputComparison:
    """One output of a rerun job: whether it is identical, whether the job's inputs were, and what differs.

    Those are the files of a folder, or the figures of a JSON file, which has so many `figures`; 0 of other files.
    """

    job: RecordedJob
    port: str
    is_identical: bool
    inputs_identical: bool
    files: tuple[str, ...] = ()
    figures: int = 0

    @property
    def text(self) -> str:
        if self.is_identical:
            figures = f", {plural(self.figures, 'figure')} as in the crate" if self.figures else ""
            return f"{self.job.title}: {self.port} identical{figures}"
        files = f" ({some_of(self.files)})" if self.files else ""
        cause = "although its inputs are identical" if self.inputs_identical else "and so do its inputs"
        return f"{self.job.title}: {self.port} differs{files}, {cause}"


@dataclass
class CrateRerun:
    """The rerun of a crate's jobs into a folder; `available` maps content that the crate names to its path.

    `allow_code` is the custom model whose code may run, `only` the stages, or titles of jobs, to run; empty for all.
    """

    crate: RunCrate
    folder: Path
    allow_code: str | None = None
    only: tuple[str, ...] = ()
    available: dict[str, Path] = field(default_factory=dict)
    comparisons: list[OutputComparison] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Select the jobs to run; raises BadInputError if there are none, or if a stage is unknown here.

        Raises UsageError for a name in `only` that no job has.
        """
        self.originals = self.crate.paths
        self.available |= self.originals
        jobs = [job for job in self.crate.jobs if job.stage not in FROZEN_STAGES and not job.failed]
        if not jobs:
            raise BadInputError(f"{self.crate.folder} has no completed job, so there is nothing to rerun")
        if absent := {*self.only}.difference(*({job.stage, job.title} for job in jobs)):
            raise UsageError(
                f"--only: {self.crate.folder} has no completed job of {', '.join(sorted(absent))} to rerun, but of "
                f"{', '.join(dict.fromkeys(job.stage for job in jobs))}"
            )
        self.jobs = [job for job in jobs if not self.only or not {job.stage, job.title}.isdisjoint(self.only)]
        unknown = sorted({job.stage for job in self.jobs} - set(STAGES))
        if unknown:
            raise BadInputError(f"{self.crate.folder} has jobs of unknown stages: {', '.join(unknown)}")

    def check_permission(self) -> None:
        """Raise RefusedError if a job trains or builds a custom model whose code is not allowed to run."""
        for job in self.jobs:
            for architecture in self._architectures(job):
                if not is_permitted(architecture, (self.allow_code,)):
                    raise RefusedError(permission_message(f"{job.title} of {self.crate.folder}", architecture))

    def _architectures(self, job: RecordedJob) -> Iterator[str]:
        """The architecture of the model that a job trains, and of one that it builds unless that is made here first."""
        if job.stage == "train":
            yield str(job.record.settings.get("architecture", ""))
        if any(port.name == "allow_code" for port in stage(job.stage).of(Knob)):
            models = [data.key for data in job.record.inputs if data.port == "model" and data.key in self.available]
            yield from (str(read_model_card(self.available[key])["architecture"]) for key in models)

    def open(self) -> None:
        """Create the folder, or resume the interrupted rerun in it; raises UsageError for any other content."""
        if self.crate.folder.resolve() in self.folder.resolve().parents:
            raise UsageError(f"{self.folder} is inside of the crate; choose another folder with --to")
        summary = self.folder / SUMMARY
        crate = read_json(summary).get("crate") if summary.is_file() else None
        if self.folder.exists() and crate != digest(self.crate.folder):
            raise UsageError(
                f"{self.folder} exists already and is not a rerun of this crate; choose another folder with --to"
            )
        self._write_summary()

    def run(self, cores: int) -> None:
        """Run the jobs, each behind those that it has inputs of, and compare outputs; print a line for each output.

        Settings that a stage has no more are left out, with a line.
        """
        removed = {
            f"{job.stage}.{name}={value}"
            for job in self.jobs
            for name, value in job.record.settings.items()
            if name not in {port.name for port in stage(job.stage).ports}
        }
        if removed:
            print(f"settings that this version does not have are left out: {', '.join(sorted(removed))}")
        with ThreadPoolExecutor(cores) as pool:
            for jobs in in_order(self.jobs):
                for comparisons in pool.map(self._rerun, jobs):
                    for comparison in comparisons:
                        print(comparison.text, flush=True)
                    self.comparisons += comparisons

    def close(self) -> int:
        """Write and print the summary; raises IntegrityError if an output differs."""
        self._write_summary()
        different = [comparison for comparison in self.comparisons if not comparison.is_identical]
        if different:
            first = next((comparison for comparison in different if comparison.inputs_identical), different[0])
            raise IntegrityError(
                f"{len(different)} of {len(self.comparisons)} outputs differ from {self.crate.folder}; check first "
                f"{first.text}"
            )
        outputs, jobs = plural(len(self.comparisons), "output"), plural(len(self.jobs), "job")
        print(f"identical: {outputs} of {jobs} with the digests of the crate")
        return 0

    def _write_summary(self) -> None:
        rows = [
            {"job": c.job.title, "output": c.port, "same": c.is_identical, "files": list(c.files)}
            for c in self.comparisons
        ]
        with publish(self.folder / SUMMARY) as draft:
            write_json(draft, {"crate": digest(self.crate.folder), "outputs": rows})

    def _rerun(self, job: RecordedJob) -> list[OutputComparison]:
        folder = self.folder / job.stage / job.label
        outputs = {data.port: folder / data.name for data in job.record.outputs}
        arguments = self._arguments(job, outputs)
        if not _is_complete(outputs.values(), arguments):
            _execute(job, arguments, self.folder / "logs" / f"{job.title.replace(' ', '-')}.log")
        inputs = job.record.inputs
        inputs_identical = all(published_digest(self.available[data.key]) in ("", data.sha256) for data in inputs)
        return [self._compare(job, data, outputs[data.port], inputs_identical) for data in job.record.outputs]

    def _arguments(self, job: RecordedJob, outputs: dict[str, Path]) -> list[str]:
        """The command line of a job with its recorded options; knobs keep their defaults, but for the permission."""
        definition = stage(job.stage)
        arguments = [job.stage]
        for port in definition.of(Input):
            paths = [self.available[data.key] for data in job.record.inputs if data.port == port.name]
            arguments += to_args(port, tuple(paths))
        for port in definition.of(Output):
            arguments += to_args(port, outputs.get(port.name))
        for port in definition.of(Option):
            arguments += to_args(port, job.record.settings.get(port.name))
        for port in definition.of(Knob):
            arguments += to_args(port, self.allow_code if port.name == "allow_code" else None)
        return arguments

    def _compare(self, job: RecordedJob, data: RecordedData, output: Path, inputs_identical: bool) -> OutputComparison:
        original, self.available[data.key] = self.originals.get(data.key), output
        is_identical, files = digest(output) == data.sha256, tuple[str, ...]()
        figures = _figures(read_json(output)) if output.suffix == ".json" and output.is_file() else {}
        if not is_identical and original is not None:
            files = _different_files(original, output) if data.folder else _different_figures(original, figures)
        return OutputComparison(job, data.port, is_identical, inputs_identical, files, len(figures))


def in_order(jobs: Sequence[RecordedJob]) -> Iterator[list[RecordedJob]]:
    """Jobs in groups: what a job reads is made by none of its group or of later ones."""
    remaining = [*jobs]
    while remaining:
        to_make = {data.key for job in remaining for data in job.record.outputs}
        ready = [job for job in remaining if not to_make & {data.key for data in job.record.inputs}]
        # Equal data, as a model that was trained twice, may seem to be made by a later job: one stage then.
        ready = ready or [job for job in remaining if job.stage == remaining[0].stage]
        yield ready
        remaining = [job for job in remaining if job not in ready]


def _is_complete(outputs: Iterable[Path], arguments: Sequence[str]) -> bool:
    """Whether an interrupted rerun has made these outputs with this command already."""
    paths = list(outputs)
    record_file = record_path(paths[0])
    record = read_json(record_file) if record_file.is_file() and all(path.exists() for path in paths) else {}
    is_same_command = record.get("arguments") == redact_for_record(["eopipe", *arguments])
    return record.get("status") == "completed" and is_same_command


def _execute(job: RecordedJob, arguments: Sequence[str], log: Path) -> None:
    """Run the command of a job; raises the error that it ended with."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        file.write(f"{shlex.join(['eopipe', *arguments])}\n")
        file.flush()
        command = [sys.executable, "-P", "-m", "eopipe", *arguments]
        result = subprocess.run(command, stdout=file, stderr=file, check=False)
    if result.returncode:
        error: Callable[[str], EopipeError] = BY_CODE.get(result.returncode, IntegrityError)
        last_line = log.read_text(encoding="utf-8").strip().splitlines()[-1].removeprefix("error: ")
        raise error(f"{job.title} ended with code {result.returncode}: {last_line} (see {log})")


def _figures(value: Any, place: str = "") -> dict[str, Any]:
    """The numbers and texts in a JSON value by their places, such as areas.forest.hectares.estimate."""
    if not isinstance(value, dict | list):
        return {place: value}
    rows = value.items() if isinstance(value, dict) else enumerate(value)
    parts = (_figures(entry, f"{place}.{key}" if place else str(key)) for key, entry in rows)
    return {name: figure for part in parts for name, figure in part.items()}


def _different_figures(original: Path, figures: dict[str, Any]) -> tuple[str, ...]:
    """The figures that differ from those of a file in the crate, with both values."""
    recorded = _figures(read_json(original)) if figures else {}
    names = (name for name in {**recorded, **figures} if recorded.get(name) != figures.get(name))
    return tuple(f"{name} {recorded.get(name)} in the crate, {figures.get(name)} here" for name in names)


def _different_files(original: Path, output: Path) -> tuple[str, ...]:
    """The files that differ between two published folders."""
    return tuple(sorted({name for name, _ in manifest_rows(original).items() ^ manifest_rows(output).items()}))
