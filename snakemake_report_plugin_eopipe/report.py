"""The crate that `snakemake --reporter eopipe` makes from the run records of a workflow, also where jobs failed."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eopipe.config import check
from eopipe.contract import IN_WORKFLOW, Option, stage
from eopipe.errors import BadInputError
from eopipe.run.rules import pinned, records
from eopipe.stages.crate import crate
from eopipe.text_files import read_json

# The outputs of these stages are identified by their digests: they are large, or the crate itself.
NOT_IN_PAYLOAD = ("import", "fetch", "preprocess", "composite", "label", "catalog", "crate")
# Where run records are below the results; deeper there are only the files of stores.
RECORD_PATTERNS = ("*.run.json", "*/*.run.json", "*/*/*.run.json")
Records = dict[Path, dict[str, Any]]


def report(dag: Any, folder: Path) -> None:
    """Make the crate of a Snakemake run; raises BadInputError if no job of it has ended yet."""
    workflow = dag.workflow
    config = check(dict(workflow.config))
    run_records = _collect_records(dag, Path(config["results"]))
    if not run_records:
        raise BadInputError("no job of this workflow has left a run record yet; run it first, then make the crate")
    payload = {
        path
        for record_file, record in run_records.items()
        if record["stage"] not in NOT_IN_PAYLOAD
        for path in _outputs(record_file, record)
    }
    scenes = {scene: path for path in payload for scene in path.glob("*.geojson")}
    # The main Snakefile may only use the workflow of eopipe as a module.
    main = Path(os.environ.get(IN_WORKFLOW, ""), "Snakefile").absolute()
    main = main if IN_WORKFLOW in os.environ else Path(workflow.main_snakefile)
    home = main.parent
    rules = {home / "workflow"} if (home / "workflow").is_dir() else set()
    config_file = next(iter(workflow.configfiles), None)
    options = {port.name for port in stage("crate").of(Option)} & config["crate"].keys()
    crate(
        tuple(sorted(run_records)),
        tuple(sorted((payload | rules) - set(scenes.values()))),
        main,
        folder,
        scenes=tuple(sorted(scenes)),
        config=Path(os.path.relpath(config_file)) if config_file else None,
        lock=next(iter(pinned(home)), None),
        **{name: config["crate"][name] for name in options} | {"engine_version": version("snakemake")},
    )


def _collect_records(dag: Any, results: Path) -> Records:
    """The records of the workflow's jobs, and of the jobs that made their inputs.

    The graph of Snakemake ends at a search that is to run again, as after a change of the code; the jobs after it
    are found through their records.
    """
    jobs = [job for level in dag.toposorted() for job in level]
    paths = {Path(path) for job in jobs for path in records(map(str, [*job.output, *job.input]))}
    makers: dict[str, Path] = {}
    for path in (path for pattern in RECORD_PATTERNS for path in results.glob(pattern)):
        makers |= {row["sha256"]: path for row in read_json(path)["outputs"] if row["sha256"]}
    collected: Records = {}
    while paths:
        new = {path: read_json(path) for path in paths - set(collected)}
        collected |= new
        digests = {row["sha256"] for record in new.values() for row in record["inputs"]}
        # A fetch reads one item of the folder, so its inputs do not lead to the record of the search.
        paths = {makers[sha256] for sha256 in digests if sha256 in makers} | _search_records(results, new)
        paths -= set(collected)
    return {path: record for path, record in collected.items() if record["stage"] != "crate"}


def _search_records(results: Path, new: Records) -> set[Path]:
    has_fetch = any(record["stage"] == "fetch" for record in new.values())
    return {path for path in (results / "items.run.json",) if has_fetch and path.is_file()}


def _outputs(record_file: Path, record: dict[str, Any]) -> list[Path]:
    """The existing outputs of a job that are in the folder of its record."""
    paths = [record_file.parent / row["name"] for row in record["outputs"] if row.get("beside", True)]
    return [path for path in paths if path.exists()]
