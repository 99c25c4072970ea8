"""The crate that `snakemake --reporter eopipe` makes of what jobs have left, also where some failed."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eopipe.config import check
from eopipe.contract import Option, stage
from eopipe.errors import BadInputError
from eopipe.publish import read_json
from eopipe.run.rules import pinned, records
from eopipe.stages.crate import crate

# What these make is named by its digest: there is much of it, or it is the crate itself.
NAMED = ("fetch", "preprocess", "composite", "label", "catalog", "crate")
# Where records lie below the results; deeper there are only pieces of stores.
PLACES = ("*.run.json", "*/*.run.json", "*/*/*.run.json")
Records = dict[Path, dict[str, Any]]


def report(dag: Any, folder: Path) -> None:
    """Make the crate of a Snakemake run; raises BadInputError where no job of it has ended."""
    workflow = dag.workflow
    config = check(dict(workflow.config))
    told = _told(dag, Path(config["results"]))
    if not told:
        raise BadInputError("no job of this workflow has left a run record yet; run it first, then make the crate")
    made = [path for record in told if told[record]["stage"] not in NAMED for path in _made(record, told[record])]
    scenes = {scene: path for path in made for scene in path.glob("*.geojson")}
    home = Path(workflow.main_snakefile).parent
    rules = [home / "workflow"] if (home / "workflow").is_dir() else []
    used = next(iter(workflow.configfiles), None)
    crate(
        tuple(sorted(told)),
        tuple(sorted({*made, *rules} - set(scenes.values()))),
        tuple(sorted(scenes)),
        Path(workflow.main_snakefile),
        folder,
        config=Path(os.path.relpath(used)) if used else None,
        lock=next(iter(pinned(home)), None),
        **{port.name: config["crate"][port.name] for port in stage("crate").of(Option) if port.name in config["crate"]}
        | {"engine_version": version("snakemake")},
    )


def _told(dag: Any, results: Path) -> Records:
    """The records of the workflow's jobs, and of the jobs that made what they read.

    Snakemake knows nothing behind a search that it would make again, as after a change of the code.
    """
    jobs = [job for level in dag.toposorted() for job in level]
    paths = {Path(path) for job in jobs for path in records(map(str, job.output))}
    makers: dict[str, Path] = {}
    for path in (one for place in PLACES for one in results.glob(place)):
        makers |= {row["sha256"]: path for row in read_json(path)["outputs"] if row["sha256"]}
    found: Records = {}
    while paths:
        new = {path: read_json(path) for path in paths - set(found)}
        found |= new
        needs = {row["sha256"] for record in new.values() for row in record["inputs"]}
        # The items come one by one, from a folder that nobody names.
        paths = {makers[one] for one in needs if one in makers} | _searches(results, new)
        paths -= set(found)
    return {path: record for path, record in found.items() if record["stage"] != "crate"}


def _searches(results: Path, found: Records) -> set[Path]:
    fetched = any(record["stage"] == "fetch" for record in found.values())
    return {path for path in (results / "items.run.json",) if fetched and path.is_file()}


def _made(record: Path, told: dict[str, Any]) -> list[Path]:
    """What a job has made and its record lies beside."""
    paths = [record.parent / row["name"] for row in told["outputs"] if row.get("beside", True)]
    return [path for path in paths if path.exists()]
