"""Commands for a person's own project: a config for an area, and the whole pipeline in one command."""

import argparse
import fcntl
import json
import os
import re
import shutil
import socket
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
# Config of eopipe for an area of your own. `eopipe check config.yaml` looks for mistakes;
# docs/stages.md of eopipe explains every setting and what else there is.

results: results                   # everything that is made
state: state                       # checkpoints and unfinished downloads; outlives failures

search:
  url: {url}
  collections: [sentinel-2-l2a]
{where}
  datetime: {datetime}
  max_cloud: 30                    # percent
  assets: {assets}

preprocess:
  bands: {bands}   # channel order of the model
  mask: scl                        # scene classification: clouds, shadows and snow are not used

label:
  source: {labels}                 # raster or vector file; for vectors, `attribute` holds the class name
  classes: {classes}
  attribute: class

split:
  method: blocks                   # whole blocks of places go to train, val or test, never single chips
  fractions: [0.7, 0.15, 0.15]
  block: 512                       # pixels
  chip: 128

train:
  processes: 1                     # torchrun workers
  epochs: 20

report:
  title: {title}
"""


def init(words: list[str]) -> int:
    """Write a commented config for an area into a new folder and tell the next command."""
    given = _init_parser().parse_args(words)
    if (given.area is None) == (given.bbox is None):
        raise UsageError("init needs either --area or --bbox")
    if given.area and not given.area.is_file():
        raise BadInputError(f"there is no file {given.area}; give a GeoJSON of the area")
    target = given.folder / "config.yaml"
    if target.exists():
        raise UsageError(f"{target} exists already; choose another folder or edit it")
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.area:
        read_json(given.area)
        shutil.copyfile(given.area, given.folder / "area.geojson")
    with publish(target) as draft:
        draft.write_text(_filled(given))
    with publish(given.folder / "Snakefile") as draft:
        draft.write_text(SNAKEFILE)
    print(f"wrote {target}; put your labels at {given.folder / given.labels}, then:\n\n  cd {given.folder}")
    print("  eopipe check config.yaml\n  eopipe run --configfile config.yaml --cores all")
    return 0


def _init_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="eopipe init", description=init.__doc__)
    made.add_argument("folder", type=Path)
    made.add_argument("--area", type=Path, help="GeoJSON of the area, in degrees")
    made.add_argument("--bbox", type=float, nargs=4, metavar=("WEST", "SOUTH", "EAST", "NORTH"))
    made.add_argument("--datetime", default="2024-05-01/2024-09-30", help="dates [%(default)s]")
    made.add_argument("--bands", nargs="+", default=["blue", "green", "red", "nir"])
    made.add_argument("--classes", nargs="+", default=["other", "forest"])
    made.add_argument("--labels", default="labels.gpkg", help="label file, relative to the folder [%(default)s]")
    made.add_argument("--url", default=EARTH_SEARCH, help="STAC API [%(default)s]")
    return made


def _filled(given: argparse.Namespace) -> str:
    """The template with values; JSON strings and lists are YAML, so nothing needs quoting by hand."""
    where = "  area: area.geojson" if given.area else f"  bbox: {json.dumps(given.bbox)}"
    return TEMPLATE.format(
        url=json.dumps(given.url),
        where=where,
        datetime=json.dumps(given.datetime),
        assets=json.dumps([*given.bands, "scl"]),
        bands=json.dumps(given.bands),
        labels=json.dumps(given.labels),
        classes=json.dumps(given.classes),
        title=json.dumps(f"Map of {given.folder.resolve().name}"),
    )


def snakefile(beside: str | None = None) -> Path:
    """The workflow: of the working folder, of the checkout that eopipe runs from, or the installed one.

    One that a project has `beside` its config is passed over.
    """
    places = (*([] if beside else [Path.cwd()]), Path(__file__).parents[2], Path(sys.prefix, "share/eopipe"))
    found = [place / "Snakefile" for place in places if (place / "Snakefile").is_file()]
    if not found:
        raise UsageError("there is no Snakefile of eopipe; run this in a checkout, or install eopipe with pip")
    return found[0]


def run(words: list[str]) -> int:
    """Run Snakemake with the given words, holding a lock that dies with this process.

    Whoever holds the lock knows that no other run is alive here, so a lock that a killed Snakemake left is
    stale and can go. Raises UsageError when a run is alive, or may be on another host.
    """
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a+") as file:
        _hold(file)
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}")
        file.flush()
        try:
            return _snakemake(words)
        finally:
            file.truncate(0)


def _hold(file: TextIO) -> None:
    """Take the lock, which some shared file systems know only within a host, and some not at all."""
    file.seek(0)
    told = file.read()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"a run is going on in this folder: {told}; wait for it or stop it") from None
    except OSError as error:
        raise UsageError(
            f"{LOCK} cannot be locked: {error.strerror}; run snakemake itself, which needs none"
        ) from error
    other = re.match(r"process \d+ on (\S+) since", told)
    if other and other[1] != socket.gethostname():
        raise UsageError(
            f"a run began here as {told} and did not end; look for it on {other[1]}, and remove {LOCK} if it is gone"
        )


def _snakemake(words: list[str]) -> int:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile()), "--rerun-incomplete"]
    # So that `eopipe usage` knows what jobs asked for.
    command.append("--benchmark-extended")
    if not {"--profile", "--cores", "-c", "--workflow-profile"} & {word.partition("=")[0] for word in words}:
        command += ["--cores", "all"]
    # Targets may stand behind a `--`, so nothing comes after the caller's words.
    command += words
    if any(Path(".snakemake/locks").glob("*")):
        subprocess.run([*command[:5], "--unlock", *command[5:]], check=False, capture_output=True)
    try:
        return subprocess.run(command, check=False, env=_environment()).returncode
    finally:
        _clean_logs()


def _clean_logs() -> None:
    """Take host, user, paths and credentials out of Snakemake's own logs; nobody else runs here now."""
    for log in Path(".snakemake/log").glob("*.log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        clean = re.sub(r"^  (Host|User): .*$", r"  \1: (not told)", text, flags=re.MULTILINE)
        clean = redact_message(clean.replace(f"{Path.cwd()}/", ""))
        if clean != text:
            log.write_text(clean, encoding="utf-8")


def _environment() -> dict[str, str]:
    """The environment; Snakemake and its jobs get a cache in this folder where that of the home cannot be written."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if os.access(next(place for place in (cache, *cache.parents) if place.exists()), os.W_OK):
        return dict(os.environ)
    return os.environ | {"XDG_CACHE_HOME": str(Path(".snakemake/cache").absolute())}


def summary(results: str) -> str:
    """Where to look after a run, and the scores in one line each, as far as they were made."""
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
    made = [f"  {root / name}" for name in names if (root / name).is_file()]
    scores = _scores(root / "metrics.json") if (root / "metrics.json").is_file() else []
    return "\n".join([*scores, *(["", "Look at:", *made, "", USAGE] if made else [])])


def _scores(path: Path) -> list[str]:
    metrics = read_json(path)
    last = ("mean of labels", "mean") if metrics.get("task") == "regression" else ("majority class", "majority")
    rows = (("this model", "model"), ("per-pixel trees", "pixel_baseline"), last)
    told = [f"  {name:<16} {_score(metrics[key], metrics.get('unit', ''))}" for name, key in rows]
    return ["", "In places that the model never saw:", *told]


def _score(scores: dict[str, Any], unit: str) -> str:
    if "rmse" in scores:
        return f"RMSE {scores['rmse']:.4g} {unit}   MAE {scores['mae']:.4g} {unit}   bias {scores['bias']:.3g} {unit}"
    return f"accuracy {scores['accuracy']:.3f}   mIoU {scores['miou']:.3f}"
