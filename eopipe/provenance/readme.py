"""The page that a person opens first in a crate."""

from collections import Counter
from collections.abc import Sequence

from eopipe.provenance.contextual_entities import Source
from eopipe.provenance.data_entities import Part
from eopipe.provenance.jobs import Job
from eopipe.provenance.people import About

CHECK = """## Check it

`eopipe verify .` compares every file with its checksum; `rocrate-validator validate -p provenance-run-crate .` checks
the metadata. What the metadata name by `#sha256/…` is not in the crate. It can be recognised by its `sha256`, or made
again: `eopipe rerun .` runs all jobs with their settings and compares every checksum. The `sha256` of a folder is that
of its `manifest.json`, which lists its files.
"""


def readme(about: About, parts: Sequence[Part], jobs: Sequence[Job], sources: Sequence[Source]) -> str:
    """What the crate holds, where it comes from and how to check it, as Markdown."""
    people = ", ".join(filter(None, (*about.people, about.organization)))
    lines = [f"# {about.title}", "", about.description, ""]
    lines += [f"By {people}. Licence: {about.license}." if people else f"Licence: {about.license}.", ""]
    lines += [f"Funded by {'; '.join(about.funding)}.", ""] if about.funding else []
    lines += ["## What is inside", "", "| name | files | bytes |", "|---|---:|---:|"]
    lines += [f"| `{part.path}` | {part.content.files} | {part.content.bytes} |" for part in parts]
    lines += ["", "`ro-crate-metadata.json` tells what every job did, with which settings, from what to what.", ""]
    lines += ["## How it was made", "", "| stage | jobs | failed |", "|---|---:|---:|"]
    count, failed = Counter(job.stage for job in jobs), Counter(job.stage for job in jobs if job.failed)
    lines += [f"| {stage} | {number} | {failed[stage]} |" for stage, number in count.items()]
    return "\n".join([*lines, "", *_credits(sources), CHECK])


def _credits(sources: Sequence[Source]) -> list[str]:
    """The credit lines and licences of the scenes, each once."""
    if not sources:
        return []
    licences = {str(s.entity["license"].id) for s in sources if "license" in s.entity}
    words = {str(s.entity["creditText"]) for s in sources if "creditText" in s.entity}
    words |= {f"Cite: {s.entity['citation']['name']}" for s in sources if "citation" in s.entity}
    words |= {f"Data by {one['name']}" for s in sources for one in s.entity.get("provider", [])}
    lines = [f"{len(sources)} scenes; their STAC Items are in `scenes/`.", ""]
    return ["## Scenes", "", *lines, *(f"- {word}" for word in sorted(words | licences)), ""]
