"""`eopipe run`: the whole pipeline in one command, in the folder of a project."""

import atexit
import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from eopipe.chips.splits import read_split
from eopipe.contract import STAGES
from eopipe.errors import UsageError
from eopipe.evaluation.metrics_document import (
    ScoresOfClasses,
    ScoresOfLabels,
    ScoresOfValues,
    read_finished_metrics,
    read_metrics,
)
from eopipe.launch.world import die_with_parent
from eopipe.processes import is_alive, signal_handlers
from eopipe.provenance.redact import redact_message
from eopipe.publish import MANIFEST, NOT_REPLACED, foreign_conflict, publish, sweep
from eopipe.reporting.finished_run import TESTED
from eopipe.reporting.verdict import verdict, weak_classes
from eopipe.reporting.wording import BASELINES, baseline_text, describe_test
from eopipe.run.job_records import has_locks
from eopipe.run.locate import shipped
from eopipe.run.rules import named_paths
from eopipe.scenes.item import read_item
from eopipe.stac.mlm import to_card
from eopipe.tasks import TASKS
from eopipe.text_files import read_json
from eopipe.training_job import TrainingLength

LOCK = Path(".snakemake/eopipe.lock")
CONFIG_OF_RESULTS = Path("logs/config.txt")
HOLDER = re.compile(r"process (?P<process>\d+) on (?P<host>\S+) since \S+")
# The process id of `eopipe run`, in the environment of its Snakemake.
RUN = "EOPIPE_RUN"
# Snakemake loads every executor plugin; HTCondor's warns of a machine without HTCondor.
NO_CONDOR = "ignore:The environment variable CONDOR_CONFIG:UserWarning"
# Seconds in which the processes of a killed run end.
ENDING_S = 10
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SNAKEFILE = """\
# `snakemake --cores all` and `snakemake --profile slurm` run eopipe with the config of this folder.
from eopipe.clusters.executor_patches import config_files
from eopipe.run.project import snakefile

# A config of the command line replaces the config of this folder.
if not config_files(workflow):

    configfile: "config.yaml"


include: str(snakefile("."))


rule project:
    input:
        rules.all.input,
"""
# Files of the results to look at after a run.
LOOK_AT = (
    *("report.html", "map.png", "metrics.json", "model-card.md", "model.onnx", "catalog/catalog.json"),
    *("products/polygons.gpkg", "products/zones.csv", "crate/ro-crate-metadata.json"),
)
USAGE = "`eopipe usage` shows what the jobs requested and used."


def snakefile(beside: str | None = None, folder: Path = Path()) -> Path:
    """The workflow: of the project folder, of the checkout that eopipe runs from, or the installed one.

    With `beside` the Snakefile of the project folder is ignored: a project has one that includes the workflow's.
    """
    return shipped("Snakefile", *([] if beside else [folder.absolute()]))


def lock_of(results: Path) -> Path:
    """The lock of a folder of results: runs of a project with results of their own, as of periods, do not wait."""
    name = str(results).strip("/").replace("/", "-")
    return LOCK if name == "results" else LOCK.with_name(f"eopipe-{name}.lock")


def run(
    argv: list[str], folder: Path = Path(), results: Path = Path("results"), *, locks_are_global: bool = False
) -> int:
    """Run Snakemake with these arguments in a project folder, holding a lock that ends with all its processes.

    While the lock is held there is not another run with these results, so a lock that a killed Snakemake left is stale
    and is removed. Raises UsageError when a run is active, or may be on another host whose locks are not visible here.
    """
    path = folder / lock_of(results)
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as lock:
        _lock(lock, locks_are_global)
        _name_holder(lock)
        try:
            return _snakemake(argv, folder, lock)
        finally:
            lock.truncate(0)


def hold_lock(results: Path = Path("results")) -> None:
    """Hold the lock of these results to the end of this Snakemake, unless it belongs to `eopipe run`, which holds it.

    Where there is no lock to be had Snakemake has only its own, which `eopipe run` takes for a stale one. Raises
    UsageError where a run is active that has not taken Snakemake's own lock.
    """
    if os.environ.get(RUN) == str(os.getppid()):
        return
    with suppress(OSError):
        lock = lock_of(results).open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise UsageError(f"a run is active with the results {results}; wait for it or stop it") from None
        _name_holder(lock)
        # It keeps the file open, too.
        atexit.register(lock.truncate, 0)


def claim_results(results: Path, config: str) -> None:
    """Write into a folder of results whose config it is, a path from here.

    Raises UsageError where that is another one, which is still there: jobs of this run would replace its results.
    """
    mark = results / CONFIG_OF_RESULTS
    earlier = mark.read_text().strip() if mark.is_file() else config
    if earlier != config and Path(earlier).is_file():
        name = Path(config).stem
        raise UsageError(
            f"{results} has the results of {earlier}, which a run of {config} would replace; add `results: "
            f"{results}-{name}` and `state: state-{name}` to {config}, or remove {results}"
        )
    with publish(mark) as draft:
        draft.write_text(f"{config}\n")
    # A killed job that had written its outputs is not run again, and nothing else would remove its drafts there.
    for pattern in ("*", "maps/*", "folds/*", "trials/*", "members/*"):
        for folder in filter(Path.is_dir, results.glob(pattern)):
            sweep(folder)


def refuse_unwritable(outputs: Iterable[Path]) -> None:
    """Raise UsageError that lists what a job would not replace at its end, which may be hours after the first job."""
    folders = [(path.parent, True) if path.name == MANIFEST else (path, False) for path in outputs]
    if conflicts := [text for path, folder in folders if (text := foreign_conflict(path, folder=folder))]:
        raise UsageError(f"{'; '.join(conflicts)}{NOT_REPLACED}")


def _name_holder(lock: TextIO) -> None:
    lock.truncate(0)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    lock.write(f"process {os.getpid()} on {platform.node()} since {since}")
    lock.flush()


def _lock(lock: TextIO, locks_are_global: bool) -> None:
    """Take the lock; on some shared file systems it holds only within a host, and some have none."""
    lock.seek(0)
    text = lock.read()
    holder = HOLDER.match(text)
    host, process = (holder["host"], int(holder["process"])) if holder else (platform.node(), 0)
    is_here = host == platform.node()
    try:
        _await_lock(lock, process if is_here else 0)
    except BlockingIOError:
        raise UsageError(f"a run is active in this folder: {text}; wait for it or stop it") from None
    except OSError as error:
        raise UsageError(
            f"{lock.name} cannot be locked: {error.strerror}; run snakemake itself, without a lock"
        ) from error
    if not is_here and not locks_are_global:
        raise UsageError(
            f"a run started here as {text} and has not ended; look for it on {host}, and remove {lock.name} if it is "
            "gone"
        )


def _await_lock(lock: TextIO, holder: int) -> None:
    """Take the lock; wait a moment for processes that still end after the one that held it was killed."""
    deadline = time.monotonic() + ENDING_S
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not holder or is_alive(holder) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _snakemake(argv: list[str], folder: Path, lock: TextIO) -> int:
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(snakefile(folder=folder))]
    # `eopipe usage` reads what jobs requested.
    command += ["--rerun-incomplete", "--benchmark-extended"]
    if folder != Path():
        command += ["--directory", str(folder)]
    if not {"--profile", "--cores", "-c", "--workflow-profile"} & {argument.partition("=")[0] for argument in argv}:
        command += ["--cores", "all"]
    # Targets may follow a `--`, so the caller's arguments are the last.
    command += argv
    if Path(lock.name).name != LOCK.name:
        # Snakemake's own locks are of the whole folder, in which other runs may be.
        command.insert(6, "--nolock")
    elif has_locks(folder):
        subprocess.run([*command[:6], "--unlock", *command[6:]], check=False, capture_output=True)
    try:
        return _run_to_its_end(command, _environment(folder), lock)
    finally:
        if not _has_other_runs(folder, lock):
            _redact_logs(folder)


def _has_other_runs(folder: Path, lock: TextIO) -> bool:
    """Whether runs with other results are active in a project: the last one of them redacts all logs."""
    for path in (folder / LOCK).parent.glob("eopipe*.lock"):
        if path != Path(lock.name):
            try:
                with path.open("a+") as other:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
    return False


def _run_to_its_end(command: list[str], environment: dict[str, str], lock: TextIO) -> int:
    """Run Snakemake as a child that cannot outlive this process; returns its exit code, as a shell counts.

    It has the lock too, and leads a process group: a signal to this process is passed on to the group once, which is
    then waited for.
    """
    received: list[int] = []
    with _signals(received) as group:
        process = subprocess.Popen(
            command,
            env=environment | {RUN: str(os.getpid())},
            pass_fds=(lock.fileno(),),
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - `eopipe run` has one thread
        )
        group.append(process.pid)
        if received:
            _pass_on(process.pid, received[0])
        code = process.wait()
    if code < 0:
        # Its jobs die with it; what a project's own rules started may not.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        print(
            f"Snakemake was ended by {signal.Signals(-code).name}; run the same command again to resume",
            file=sys.stderr,
        )
    if received and code:
        return 128 + received[0]
    return code if code >= 0 else 128 - code


@contextmanager
def _signals(received: list[int]) -> Iterator[list[int]]:
    """Pass the first signal that asks for an end on to a process group, once it is in the list that this gives."""
    group: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if group and len(received) == 1:
            _pass_on(group[0], number)

    def suspend(_number: int, _frame: FrameType | None) -> None:
        for leader in group:
            os.killpg(leader, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for leader in group:
            os.killpg(leader, signal.SIGCONT)

    handlers: dict[int, Any] = dict.fromkeys(STOPS, stop) | {signal.SIGTSTP: suspend}
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    # Under nohup, and in the background of a script, some are ignored.
    handlers = {number: handler for number, handler in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    with signal_handlers(handlers):
        yield group


def _pass_on(group: int, number: int) -> None:
    """Pass a signal on; a closed terminal as SIGTERM, by which Snakemake waits for jobs that save their state."""
    print(f"{signal.Signals(number).name}: waiting until the running jobs have ended", file=sys.stderr)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM if number == signal.SIGHUP else number)


def _redact_logs(folder: Path) -> None:
    """Remove host, user, paths and credentials from Snakemake's own logs; this is the only run here now."""
    for log in (folder / ".snakemake/log").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        clean = re.sub(r"^  (Host|User): .*$", r"  \1: (redacted)", text, flags=re.MULTILINE)
        clean = redact_message(clean.replace(f"{folder.absolute()}/", ""))
        if clean != text:
            log.write_text(clean, encoding="utf-8")


def _environment(folder: Path) -> dict[str, str]:
    """The environment; with a cache in the project for Snakemake and its jobs where the home's is read-only."""
    # The folder may be of another person: its json.py must not be imported by Python started there.
    warnings = ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), NO_CONDOR)))
    variables = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": warnings}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    existing = next(parent for parent in (cache, *cache.parents) if parent.exists())
    if os.access(existing, os.W_OK):
        return variables
    return variables | {"XDG_CACHE_HOME": str((folder / ".snakemake/cache").absolute())}


def summary(results: str) -> str:
    """Scores in a line each, and the files to look at after a run, as far as they exist."""
    root = Path(results)
    files = [f"  {root / name}" for name in LOOK_AT if (root / name).is_file()]
    scores = _scores(root / "metrics.json") if (root / "metrics.json").is_file() else []
    scores += _short_training(root / "model/model.json")
    return "\n".join([*scores, *(["", "Look at:", *files, "", USAGE] if files else [])])


def _short_training(model: Path) -> list[str]:
    """The sentence on a training with too few steps, of a model that is there."""
    if not model.is_file():
        return []
    card = to_card(read_item(model), model)
    length = TrainingLength.of_model(card["settings"], str(card["task"]))
    return [f"Warning: {length.warning}."] if length and length.warning else []


def _scores(path: Path) -> list[str]:
    if "baselines" in read_json(path):
        of_map = read_finished_metrics(path)
        return ["", f"Scores of the map. {TESTED}", f"  {_score(of_map.model, '')}", *weak_classes(of_map)]
    metrics = read_metrics(path)
    names = {"model": "this model", **BASELINES, "simple": TASKS[metrics.task].simple_baseline[1]}
    lines = [f"  {names[key]:<29} {_score(scores, metrics.unit)}" for key, scores in metrics.methods.items()]
    sentences = filter(None, (verdict(metrics).headline, baseline_text(metrics)))
    split = path.parent / "split.json"
    of_split = [describe_test(read_split(split))] if split.is_file() else []
    return ["", "Scores on the test split.", *of_split, *lines, "", *sentences]


def _score(scores: ScoresOfClasses | ScoresOfLabels | ScoresOfValues, unit: str) -> str:
    if isinstance(scores, ScoresOfValues):
        errors = {"RMSE": scores.rmse, "MAE": scores.mae, "bias": scores.bias}
        return "   ".join(f"{name} {'-' if value is None else f'{value:.4g} {unit}'}" for name, value in errors.items())
    if isinstance(scores, ScoresOfLabels):
        values = {"micro F1": scores.f1_micro, "macro F1": scores.f1_macro}
    else:
        values = {"accuracy": scores.accuracy, "mIoU": scores.miou}
    # A score that nothing could be measured of is null.
    return "   ".join(f"{name} {'-' if value is None else f'{value:.3f}'}" for name, value in values.items())


def reset_future_times(config: dict[str, Any]) -> str:
    """Set modification times of results that are in the future to now, in their order; what to print about it.

    They come from clocks that differ or were set back; Snakemake treats outputs of such a file as outdated, and
    fails the job. The user's own files are not touched, only named.
    """
    now = time.time_ns()
    inputs = {Path(path) for name in STAGES for path in named_paths(config, name)}
    results = {path for path in Path(config["results"]).rglob("*") if path.is_file()} - inputs
    late = sorted((path.stat().st_mtime_ns, path) for path in results if path.stat().st_mtime_ns > now)
    for number, (_, path) in enumerate(late):
        with suppress(PermissionError):
            os.utime(path, ns=(now - len(late) + number,) * 2)
    lines = [f"{len(late)} results had modification times in the future, as {late[0][1]}; set to now"] if late else []
    lines += [
        f"warning: {path} has a modification time in the future; Snakemake fails jobs whose outputs are older: touch it"
        for path in sorted(inputs)
        if path.is_file() and path.stat().st_mtime_ns > now
    ]
    return "".join(f"{line}\n" for line in lines)
