"""The whole run -> one folder that tells how everything in it was made."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output

ORCID = r"^(https://orcid\.org/)?\d{4}-\d{4}-\d{4}-\d{3}[\dX]$"
ROR = r"^(https://ror\.org/)?0[a-z0-9]{8}$"


def crate(
    records: Annotated[tuple[Path, ...], Input("run records of all jobs", format="application/json")],
    payload: Annotated[tuple[Path, ...], Input("what the crate holds: model, maps, scores, report", mixed=True)],
    scenes: Annotated[tuple[Path, ...], Input("frozen STAC Items of the run", format="application/geo+json")],
    workflow: Annotated[Path, Input("main workflow file: Snakefile or pipeline.cwl")],
    crate: Annotated[Path, Output("crate", "Provenance Run Crate", folder=True)],
    *,
    config: Annotated[Path | None, Input("config file of the run", format="application/yaml")] = None,
    lock: Annotated[
        Path | None, Input("pinned versions of the software, as constraints.txt", format="text/plain")
    ] = None,
    engine: Annotated[Literal["snakemake", "cwl"], Option("what ran the jobs")] = "snakemake",
    engine_version: Annotated[str, Option("version of what ran the jobs")] = "",
    title: Annotated[str, Option("name of the crate", min_length=1)] = "eopipe run",
    description: Annotated[str, Option("what the crate is about", min_length=1)] = (
        "Satellite scenes to a trained, measured and mapped model, with the record of every job."
    ),
    license: Annotated[  # noqa: A002 - the word of RO-Crate and of every catalogue
        str, Option("licence of the crate: SPDX id, as CC-BY-4.0, or address", pattern=r"^(https?://\S+|[\w.+-]+)$")
    ] = "Apache-2.0",
    author: Annotated[str, Option("name of the person who made the run")] = "",
    orcid: Annotated[str | None, Option("ORCID of the author", pattern=ORCID)] = None,
    organization: Annotated[str, Option("name of the organization of the author, and publisher")] = "",
    ror: Annotated[str | None, Option("ROR id of the organization", pattern=ROR)] = None,
    coauthors: Annotated[
        tuple[str, ...], Option("other authors, each as Name ORCID; Organization, the last two where known")
    ] = (),
    funding: Annotated[
        tuple[str, ...], Option("who paid, each a name or ROR address, with the grant behind a colon and a space")
    ] = (),
) -> None:
    """Put a run into one folder as an RO-Crate that says how everything was made.

    The metadata follow the Provenance Run Crate profile 0.5 and come from the run records alone, whichever
    engine ran the jobs; failed jobs are told too. Payload is hard-linked where the file system allows, so a
    crate costs no space: treat its files as read-only. What is not in the payload is named by its checksum.
    Commands, errors and the config are written without absolute paths and credentials; the payload goes in as it
    is. Raises BadInputError for files that are no run records or no STAC Items.
    """
    from eopipe.provenance.contextual_entities import About
    from eopipe.provenance.crate import Engine, Sources, build
    from eopipe.provenance.data_entities import refuse_foreign
    from eopipe.publish import publish

    sources = Sources(records, payload, scenes, workflow, config, lock)
    people = (author, orcid, organization, ror, coauthors, funding)
    about = About(title, description, license, *people)
    refuse_foreign(crate)
    with publish(crate, folder=True) as draft:
        build(draft, sources, about, Engine(engine, engine_version))
