"""`eopipe init` and `eopipe run`: a config for an area of interest, and the whole pipeline in one command."""

import argparse
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from eopipe.errors import BadInputError, UsageError
from eopipe.provenance.redact import redact_message
from eopipe.publish import publish, read_json

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
EARTH_SEARCH = "https://earth-search.aws.element84.com/v1"
TEMPLATE = """\
# Config of an eopipe run. `eopipe check config.yaml` reports mistakes; docs/stages.md of eopipe lists all settings.

results: results                   # all outputs
state: state                       # checkpoints and unfinished downloads; kept after failures

search:
  url: {url}
  collections: [sentinel-2-l2a]
{place}
  datetime: {datetime}
  max_cloud: 30                    # percent
  assets: {assets}

preprocess:
  bands: {bands}   # channel order of the model
  mask: scl                        # scene classification: masks clouds, shadows and snow

label:
  source: {labels}                 # raster or vector file; for vectors, `attribute` is the field of the class name
  classes: {classes}
  attribute: class

split:
  method: blocks                   # spatial blocks go to train, val or test as a whole, never single chips
  fractions: [0.7, 0.15, 0.15]
  block: 512                       # pixels
  chip: 128

train:
  processes: 1                     # torchrun workers
  epochs: 20

report:
  title: {title}
"""


def init(argv: list[str]) -> int:
    """Write a commented config for an area into a new folder and print the next command."""
    options = _init_parser().parse_args(argv)
    folder: Path = options.folder
    if (options.area is None) == (options.bbox is None):
        raise UsageError("init needs exactly one of --area and --bbox")
    if options.area and not options.area.is_file():
        raise BadInputError(f"there is no file {options.area}; give a GeoJSON of the area")
    target = folder / "config.yaml"
    if target.exists():
        raise UsageError(f"{target} exists already; choose another folder or edit it")
    folder.mkdir(parents=True, exist_ok=True)
    if options.area:
        read_json(options.area)
        shutil.copyfile(options.area, folder / "area.geojson")
    for path, text in ((target, _config_text(options)), (folder / "Snakefile", SNAKEFILE)):
        with publish(path) as draft:
            draft.write_text(text)
    print(f"wrote {target}; put your labels at {folder / options.labels}, then:\n\n  cd {folder}")
    print("  eopipe check config.yaml\n  eopipe run --configfile config.yaml --cores all")
    return 0


def _init_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eopipe init", description=init.__doc__)
    parser.add_argument("folder", type=Path, help="new folder of the project")
    parser.add_argument("--area", type=Path, help="GeoJSON of the area, in degrees")
    parser.add_argument(
        "--bbox",
        type=float,
        nargs=4,
        metavar=("WEST", "SOUTH", "EAST", "NORTH"),
        help="bounding box of the area, in degrees",
    )
    parser.add_argument(
        "--datetime", default="2024-05-01/2024-09-30", help="date or interval of acquisition [%(default)s]"
    )
    parser.add_argument(
        "--bands",
        nargs="+",
        default=["blue", "green", "red", "nir"],
        help="band names, in channel order [blue green red nir]",
    )
    parser.add_argument(
        "--classes",
        nargs="+",
        default=["other", "forest"],
        help="class names, in the order of the class numbers [other forest]",
    )
    parser.add_argument("--labels", default="labels.gpkg", help="label file, relative to the folder [%(default)s]")
    parser.add_argument("--url", default=EARTH_SEARCH, help="URL of a STAC API [%(default)s]")
    return parser


def _config_text(options: argparse.Namespace) -> str:
    """The template with values; JSON strings and lists are YAML, so nothing needs quotes by hand."""
    place = "  area: area.geojson" if options.area else f"  bbox: {json.dumps(options.bbox)}"
    return TEMPLATE.format(
        url=json.dumps(options.url),
        place=place,
        datetime=json.dumps(options.datetime),
        assets=json.dumps([*options.bands, "scl"]),
        bands=json.dumps(options.bands),
        labels=json.dumps(options.labels),
        classes=json.dumps(options.classes),
        title=json.dumps(f"Map of {options.folder.resolve().name}"),
    )


def snakefile(beside: str | None = None) -> Path:
    """The workflow: of the working folder, of the checkout that eopipe runs from, or the installed one.

    With `beside` the Snakefile of the working folder is ignored: a project has one that includes the workflow's.
    """
    folders = (*([] if beside else [Path.cwd()]), Path(__file__).parents[2], Path(sys.prefix, "share/eopipe"))
    files = [folder / "Snakefile" for folder in folders if (folder / "Snakefile").is_file()]
    if not files:
        raise UsageError("eopipe's Snakefile is not here; run this in a checkout, or install eopipe with pip")
    return files[0]


def run(argv: list[str]) -> int:
    """Run Snakemake with these arguments, holding a lock that ends with this process.

    While the lock is held there is not another run here, so a lock that a killed Snakemake left is stale and is
    removed. Raises UsageError when a run is active, or may be on another host.
    """
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a+") as file:
        _lock(file)
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {platform.node()} since {since}")
        file.flush()
        try:
            return _snakemake(argv)
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


def _snakemake(argv: list[str]) -> int:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile()), "--rerun-incomplete"]
    # `eopipe usage` reads what jobs requested.
    command.append("--benchmark-extended")
    if not {"--profile", "--cores", "-c", "--workflow-profile"} & {argument.partition("=")[0] for argument in argv}:
        command += ["--cores", "all"]
    # Targets may follow a `--`, so the caller's arguments are the last.
    command += argv
    if any(Path(".snakemake/locks").glob("*")):
        subprocess.run([*command[:5], "--unlock", *command[5:]], check=False, capture_output=True)
    try:
        return subprocess.run(command, check=False, env=_environment()).returncode
    finally:
        _redact_logs()


def _redact_logs() -> None:
    """Remove host, user, paths and credentials from Snakemake's own logs; this is the only run here now."""
    for log in Path(".snakemake/log").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        clean = re.sub(r"^  (Host|User): .*$", r"  \1: (redacted)", text, flags=re.MULTILINE)
        clean = redact_message(clean.replace(f"{Path.cwd()}/", ""))
        if clean != text:
            log.write_text(clean, encoding="utf-8")


def _environment() -> dict[str, str]:
    """The environment; with a cache in this folder for Snakemake and its jobs where that of the home is read-only."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if os.access(existing, os.W_OK):
        return dict(os.environ)
    return os.environ | {"XDG_CACHE_HOME": str(Path(".snakemake/cache").absolute())}


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
    return ["", "Scores on the test split, which was not used in training:", *lines]


def _score(scores: dict[str, Any], unit: str) -> str:
    if "rmse" in scores:
        return f"RMSE {scores['rmse']:.4g} {unit}   MAE {scores['mae']:.4g} {unit}   bias {scores['bias']:.3g} {unit}"
    return f"accuracy {scores['accuracy']:.3f}   mIoU {scores['miou']:.3f}"
