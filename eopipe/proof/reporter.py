"""The crate that `snakemake --reporter eopipe` makes of what jobs have left, also where some failed."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eopipe.config import check
from eopipe.contract import Option, stage
from eopipe.errors import BadInputError
from eopipe.publish import MANIFEST, read_json
from eopipe.rules import records, rules_of
from eopipe.stages.crate import crate

# What these make is named by its digest: there is much of it, or it is the crate itself.
NAMED = ("fetch", "preprocess", "composite", "label", "catalog", "crate")


def report(dag: Any, folder: Path) -> None:
    """Make the crate of a Snakemake run; raises BadInputError where no job of it has ended."""
    jobs = [job for level in dag.toposorted() for job in level]
    made = {path: _paths(job.output) for job in jobs for path in records(map(str, job.output))}
    told = {path: name for path in made if (name := read_json(Path(path))["stage"]) != "crate"}
    if not told:
        raise BadInputError("no job of this workflow has left a run record yet; run it first, then make the crate")
    paths = [one for path, name in told.items() if name not in NAMED for one in made[path]]
    items = [path for path in paths if path.is_dir() and any(path.glob("*.geojson"))]
    workflow = dag.workflow
    config = next(iter(workflow.configfiles), None)
    rules = [place] if (place := Path(rules_of(workflow.main_snakefile))).is_dir() else []
    given = check(dict(workflow.config))["crate"]
    crate(
        tuple(map(Path, sorted(told))),
        tuple(sorted({*(path for path in paths if path not in items), *rules})),
        tuple(sorted(scene for path in items for scene in path.glob("*.geojson"))),
        Path(workflow.main_snakefile),
        folder,
        config=Path(os.path.relpath(config)) if config else None,
        lock=Path("constraints.txt") if Path("constraints.txt").is_file() else None,
        **{port.name: given[port.name] for port in stage("crate").of(Option) if port.name in given}
        | {"engine_version": version("snakemake")},
    )


def _paths(outputs: Sequence[str]) -> list[Path]:
    """What a job has made; a manifest stands for its folder."""
    paths = [Path(one) for one in map(str, outputs)]
    return [path.parent if path.name == MANIFEST else path for path in paths if path.exists()]
