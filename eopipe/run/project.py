"""`eopipe run`: the whole pipeline in one command, in the folder of a project."""

import fcntl
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from eopipe.errors import UsageError
from eopipe.provenance.redact import redact_message
from eopipe.publish import read_json
from eopipe.reporting.verdict import verdict
from eopipe.reporting.wording import describe_test

LOCK = Path(".snakemake/eopipe.lock")
SNAKEFILE = """\
# `snakemake --cores all` and `snakemake --profile slurm` run eopipe with the config of this folder.
from eopipe.run.project import snakefile


configfile: "config.yaml"


include: str(snakefile("."))


rule project:
    input:
        rules.all.input,
"""
USAGE = "`eopipe usage` shows what the jobs requested and used."


def snakefile(beside: str | None = None, folder: Path = Path()) -> Path:
    """The workflow: of the project folder, of the checkout that eopipe runs from, or the installed one.

    With `beside` the Snakefile of the project folder is ignored: a project has one that includes the workflow's.
    """
    project = [] if beside else [folder.absolute()]
    folders = (*project, Path(__file__).parents[2], Path(sys.prefix, "share/eopipe"))
    files = [folder / "Snakefile" for folder in folders if (folder / "Snakefile").is_file()]
    if not files:
        raise UsageError("eopipe's Snakefile is not here; run this in a checkout, or install eopipe with pip")
    return files[0]


def run(argv: list[str], folder: Path = Path()) -> int:
    """Run Snakemake with these arguments in a project folder, holding a lock that ends with this process.

    While the lock is held there is not another run here, so a lock that a killed Snakemake left is stale and is
    removed. Raises UsageError when a run is active, or may be on another host.
    """
    (folder / LOCK).parent.mkdir(exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        _lock(file)
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {platform.node()} since {since}")
        file.flush()
        try:
            return _snakemake(argv, folder)
        finally:
            file.truncate(0)


def _lock(file: TextIO) -> None:
    """Take the lock; on some shared file systems it holds only within a host, and some have none."""
    file.seek(0)
    holder = file.read()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"a run is active in this folder: {holder}; wait for it or stop it") from None
    except OSError as error:
        raise UsageError(f"{LOCK} cannot be locked: {error.strerror}; run snakemake itself, without a lock") from error
    host = re.match(r"process \d+ on (\S+) since", holder)
    if host and host[1] != platform.node():
        raise UsageError(
            f"a run started here as {holder} and has not ended; "
            f"look for it on {host[1]}, and remove {LOCK} if it is gone"
        )


def _snakemake(argv: list[str], folder: Path) -> int:
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(snakefile(folder=folder))]
    # `eopipe usage` reads what jobs requested.
    command += ["--rerun-incomplete", "--benchmark-extended"]
    if folder != Path():
        command += ["--directory", str(folder)]
    if not {"--profile", "--cores", "-c", "--workflow-profile"} & {argument.partition("=")[0] for argument in argv}:
        command += ["--cores", "all"]
    # Targets may follow a `--`, so the caller's arguments are the last.
    command += argv
    if any((folder / ".snakemake/locks").glob("*")):
        subprocess.run([*command[:6], "--unlock", *command[6:]], check=False, capture_output=True)
    try:
        return subprocess.run(command, check=False, env=_environment(folder)).returncode
    finally:
        _redact_logs(folder)


def _redact_logs(folder: Path) -> None:
    """Remove host, user, paths and credentials from Snakemake's own logs; this is the only run here now."""
    for log in (folder / ".snakemake/log").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        clean = re.sub(r"^  (Host|User): .*$", r"  \1: (redacted)", text, flags=re.MULTILINE)
        clean = redact_message(clean.replace(f"{folder.absolute()}/", ""))
        if clean != text:
            log.write_text(clean, encoding="utf-8")


def _environment(folder: Path) -> dict[str, str]:
    """The environment; with a cache in the project for Snakemake and its jobs where that of the home is read-only."""
    # The folder may be of another person: its json.py must not be imported by Python started there.
    variables = os.environ | {"PYTHONSAFEPATH": "1"}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    existing = next(parent for parent in (cache, *cache.parents) if parent.exists())
    if os.access(existing, os.W_OK):
        return variables
    return variables | {"XDG_CACHE_HOME": str((folder / ".snakemake/cache").absolute())}


def summary(results: str) -> str:
    """Scores in a line each, and the files to look at after a run, as far as they exist."""
    root = Path(results)
    names = (
        "report.html",
        "map.png",
        "metrics.json",
        "model-card.md",
        "model.onnx",
        "catalog/catalog.json",
        "crate/ro-crate-metadata.json",
    )
    files = [f"  {root / name}" for name in names if (root / name).is_file()]
    scores = _scores(root / "metrics.json") if (root / "metrics.json").is_file() else []
    return "\n".join([*scores, *(["", "Look at:", *files, "", USAGE] if files else [])])


def _scores(path: Path) -> list[str]:
    metrics = read_json(path)
    last = ("mean of labels", "mean") if metrics.get("task") == "regression" else ("majority class", "majority")
    rows = (("this model", "model"), ("per-pixel trees", "pixel_baseline"), last)
    lines = [f"  {name:<16} {_score(metrics[key], metrics.get('unit', ''))}" for name, key in rows]
    return ["", *_test_areas(path.parent / "split.json"), *lines, "", verdict(metrics).headline]


def _test_areas(split: Path) -> list[str]:
    """What the test chips have in common with training, as far as the split is available."""
    return ["Scores on the test split.", *([describe_test(read_json(split))] if split.is_file() else [])]


def _score(scores: dict[str, Any], unit: str) -> str:
    if "rmse" in scores:
        return f"RMSE {scores['rmse']:.4g} {unit}   MAE {scores['mae']:.4g} {unit}   bias {scores['bias']:.3g} {unit}"
    # A score that nothing could be measured of is null.
    accuracy, miou = ("-" if scores[key] is None else f"{scores[key]:.3f}" for key in ("accuracy", "miou"))
    return f"accuracy {accuracy}   mIoU {miou}"
