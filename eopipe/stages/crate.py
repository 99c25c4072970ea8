"""The whole run -> an RO-Crate: one folder that describes how everything in it was made."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output
from eopipe.ports import FrozenItems

# 2: no licence and no author where none are stated. 3: the README escapes text; container images, media types,
# descriptions of parameters. 4: cells of tables wrap.
REVISION = 4
ORCID = r"^(https://orcid\.org/)?\d{4}-\d{4}-\d{4}-\d{3}[\dX]$"
ROR = r"^(https://ror\.org/)?0[a-z0-9]{8}$"


def crate(
    records: Annotated[tuple[Path, ...], Input("run records of all jobs", format="application/json", nested=True)],
    payload: Annotated[
        tuple[Path, ...], Input("files and folders that the crate contains: model, maps, metrics, report", mixed=True)
    ],
    workflow: Annotated[Path, Input("main workflow file: Snakefile or pipeline.cwl")],
    crate: Annotated[Path, Output("crate", "Provenance Run Crate", folder=True)],
    *,
    scenes: FrozenItems = (),
    config: Annotated[Path | None, Input("config file of the run", format="application/yaml")] = None,
    lock: Annotated[
        Path | None, Input("pinned versions of the software, such as constraints.txt", format="text/plain")
    ] = None,
    engine: Annotated[
        Literal["snakemake", "cwl"], Option("workflow engine that ran the jobs", of_job=True)
    ] = "snakemake",
    engine_version: Annotated[str, Option("version of the workflow engine", of_job=True)] = "",
    title: Annotated[str, Option("name of the crate", section="report", min_length=1)] = "eopipe run",
    description: Annotated[str, Option("description of the crate", min_length=1)] = (
        "Satellite scenes to a trained, measured and mapped model, with the record of every job."
    ),
    license: Annotated[  # noqa: A002 - the term of RO-Crate and of every catalogue
        str,
        Option(
            "licence of crate, model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL; without it crate, "
            "cards and catalog say that none is stated",
            pattern=r"^(https?://\S+|[\w.+-]*)$",
        ),
    ] = "",
    author: Annotated[str, Option("name of the person who ran the pipeline")] = "",
    orcid: Annotated[str | None, Option("ORCID of the author", pattern=ORCID)] = None,
    organization: Annotated[str, Option("name of the author's organization, which is also the publisher")] = "",
    ror: Annotated[str | None, Option("ROR id of the organization", pattern=ROR)] = None,
    coauthors: Annotated[
        tuple[str, ...], Option("other authors, each as `Name ORCID; Organization`, the last two optional")
    ] = (),
    funding: Annotated[
        tuple[str, ...], Option("funders, each as `Name: grant` or `ROR URL: grant`, the grant optional")
    ] = (),
) -> None:
    """Package a run as an RO-Crate, with the provenance of every result.

    The metadata follow the Provenance Run Crate profile 0.5 and are built from the run records alone, whichever
    engine ran the jobs; failed jobs are included. Payload is hard-linked where the file system allows, so that a
    crate needs no extra space: treat its files as read-only. Data that are not in the payload are identified by
    their checksum. Commands, errors and the config are redacted (no absolute paths, no credentials); the payload is
    not changed. Raises BadInputError for files that are not run records or not STAC Items.
    """
    from eopipe.provenance.crate import CrateInputs, build_crate
    from eopipe.provenance.graph import CrateDescription
    from eopipe.publish import publish

    inputs = CrateInputs(records, payload, scenes, workflow, config, lock, engine, engine_version)
    people = (author, orcid, organization, ror, coauthors, funding)
    crate_description = CrateDescription(title, description, license, *people)
    with publish(crate, folder=True) as draft:
        build_crate(draft, inputs, crate_description)
