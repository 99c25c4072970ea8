"""`eopipe rerun`: run the jobs of a crate again and compare every digest."""

import glob
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Annotated

import yaml

from eopipe import __version__
from eopipe.contract import Argument
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.provenance.crate_reader import RunCrate, crate_damages, read_crate
from eopipe.provenance.jobs import RecordedData, RecordedJob
from eopipe.provenance.record import commit
from eopipe.provenance.redact import strings
from eopipe.provenance.rerun_jobs import FROZEN_STAGES, CrateRerun
from eopipe.publish import MANIFEST, content_digest, damage_message, digest, verify
from eopipe.text_files import parse_yaml


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
    for name, recorded in sorted(_libraries(crate).items()):
        installed = _installed(name)
        if recorded != {installed}:
            yield f"note: {name} was {' and '.join(sorted(recorded))} and is {installed or 'not installed'} here"
    if any(name.endswith("+") for name in crate.commits):
        yield "note: the run was made from changed files (+ behind its commit), which are not in any commit"
    if commit().endswith("+"):
        yield "note: files of this checkout are changed, so it is not the code of its commit"


def _libraries(crate: RunCrate) -> dict[str, set[str]]:
    """The recorded versions of each library."""
    versions: dict[str, set[str]] = {}
    for job in crate.jobs:
        for name, number in job.record.software.items():
            versions.setdefault(name, set()).add(number)
    return versions


def _installed(name: str) -> str:
    """The installed version of a library, empty if it is not installed."""
    if name == "python":
        return platform.python_version()
    with suppress(PackageNotFoundError):
        return version(name)
    return ""


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
    is_published = (path / MANIFEST).is_file()
    has_content = not data.sha256 or (digest(path) if is_published else content_digest(path)) == data.sha256
    if is_published and has_content:
        # The digest is the manifest's, and a file may have changed since.
        verify(path)
    return has_content
