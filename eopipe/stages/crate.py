"""The run as a Provenance Run Crate."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output


def crate(
    records: Annotated[tuple[Path, ...], Input("run records of the stages", format="application/json")],
    payload: Annotated[tuple[Path, ...], Input("what the crate holds: model, maps, metrics, report", mixed=True)],
    scenes: Annotated[tuple[Path, ...], Input("frozen STAC Items of the run", format="application/geo+json")],
    workflow: Annotated[Path, Input("main workflow file")],
    crate: Annotated[Path, Output("crate", "Provenance Run Crate", folder=True)],
    *,
    config: Annotated[Path | None, Input("config file of the run")] = None,
    lock: Annotated[Path | None, Input("pinned Python packages")] = None,
    engine: Annotated[Literal["snakemake", "cwl"], Option("engine that ran the stages")] = "snakemake",
    title: Annotated[str, Option("name of the crate")] = "eopipe run",
) -> None:
    """Describe a run as a Provenance Run Crate."""
    raise NotImplementedError
