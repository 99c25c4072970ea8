"""Under which licence a run's results stand, and how to cite them and their data."""

from collections.abc import Iterator

from eopipe import __version__
from eopipe.reporting import data_tables as facts
from eopipe.reporting.run_data import Story

UNSTATED = "none is stated (report.{name} in the config states it)"
# What Hugging Face lists; any other licence goes by its name.
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "gpl-3.0", "bsd-3-clause")


def licence_words(story: Story, what: str) -> Iterator[str]:
    """The licence of what was made, and those of the scenes and labels that it was made from."""
    yield f"Licence of the {what}: {story.said.license or UNSTATED.format(name='license')}."
    named = [one.text for one in facts.licences(story.items)]
    yield f"Licence of the scenes: {'; '.join(named) or 'their items name none'}. Labels keep that of their source."


def cite_words(story: Story) -> Iterator[str]:
    """How to cite the run, and the data that it rests on."""
    author = story.said.author or "Author not stated (report.author in the config states one)"
    yield f"{author}: {story.title}. Made with eopipe {__version__}; weights sha256 {story.digests[0][1]}."
    yield "Where the crate of the run is published, cite that: it proves what is told here."
    for cite in facts.citations(story.items):
        yield f"Data: {cite.text} {cite.address}".strip()
    credits_ = [*facts.credits_of(story.items), *filter(None, [story.attribution])]
    yield from ([f"Credits: {'; '.join(dict.fromkeys(credits_))}."] if credits_ else [])


def licence_matter(name: str) -> dict[str, str]:
    """A licence as Hugging Face has it: an id of its list, or other and the name."""
    if not name:
        return {"license": "unknown"}
    if name.lower() in LICENCES:
        return {"license": name.lower()}
    link = name if "://" in name else f"https://spdx.org/licenses/{name}"
    return {"license": "other", "license_name": name.rstrip("/").rpartition("/")[2].lower(), "license_link": link}
