"""The data card: scenes, labels and splits of a run, as data sheets ask (Gebru et al. 2021, doi:10.1145/3458723)."""

from collections.abc import Iterator
from typing import Any

from eopipe.reporting import data_tables as facts
from eopipe.reporting.cards import Card, Part, Table
from eopipe.reporting.data_tables import Row
from eopipe.reporting.licence import cite_words, licence_matter, licence_words
from eopipe.reporting.model_card import TASKS
from eopipe.reporting.run_data import Story, ground_words
from eopipe.reporting.spans import collections, span_words, task_of
from eopipe.reporting.wording import listed, number, plural

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
MADE = (
    "Each scene was warped onto one grid as integers with scale and offset; pixels that its mask calls cloud, shadow "
    "or fill are not used. Labels were put onto the same grid. Chips are cut from both and dealt out to the splits."
)
SCENES = ("Scene", "Date", "Cloud", "No data", "Masked", "Saturated", "Valid", "Chips", "Note")


def data_card(story: Story) -> Card:
    """The card of a story's data."""
    scenes = facts.scene_rows(story.items, story.pairs, story.quality.drifted, story.split)
    parts = (
        Part("What it is", text=tuple(_what(story))),
        Part("How it was made", text=(MADE,), tables=(_table("Settings of the split", facts.plan_rows(story.split)),)),
        Part("Scenes", tables=(Table("Cloud as the catalog says, all else as measured on the grid", SCENES, scenes),)),
        _splits(story),
        Part("Limits", points=tuple(_limits(story))),
        Part("Licence", text=tuple(licence_words(story, "stores that were made"))),
        Part("How to cite", text=tuple(cite_words(story))),
    )
    return Card(story.title, "Data card, written by eopipe from the run that used the data.", _matter(story), parts)


def _what(story: Story) -> Iterator[str]:
    yield f"{plural(len(story.items), 'scene')} of {collections(story)}, {span_words(story)}: {ground_words(story)}."
    bands = listed(list(story.model["bands"]))
    yield f"Bands {bands}; labels: {listed(list(story.classes))}; made for {task_of(story)}."


def _table(caption: str, rows: list[Row]) -> Table:
    return Table(caption, ("Setting", "Value"), rows)


def _splits(story: Story) -> Part:
    gaps = Table(
        "Gap between the nearest chips", ("Splits", "Pixels", "On the ground"), facts.gap_rows(story.split, story.pairs)
    )
    pixels = ("Class", "Train", "Validation", "Test")
    found = Table(
        "Leaks that were found and allowed", ("Kind", "Times", "Example", "Reason"), facts.finding_rows(story.split)
    )
    return Part(
        "Labels and splits",
        tables=(
            Table("Labelled pixels of each split over all scenes, and chips", pixels, facts.pixel_rows(story.split)),
            Table("What became of all chips", ("Chips", "Number", "Share"), facts.fate_rows(story.split)),
            gaps,
            found,
        ),
    )


def _limits(story: Story) -> Iterator[str]:
    yield f"One area and {span_words(story)}; other places and times may look otherwise."
    yield "Errors of the labels and of the masks are not known here."
    for scene, (band, shift) in sorted(story.quality.drifted.items()):
        yield f"Scene {scene} is unlike the rest: {band} by {shift:.1f} quartile ranges."
    for one in story.split.get("left_out") or []:
        yield f"Scene {one['scene']} was left out: valid on {number(100 * one['valid'])} % of the grid."
    gap = facts.gap_words(story.split, story.pairs)
    if gap:
        yield gap


def _matter(story: Story) -> dict[str, Any]:
    chips = sum(len(rows) for rows in story.split["samples"].values())
    size = next((words for most, words in SIZES if chips < most), "n>1M")
    told: dict[str, Any] = {"pretty_name": story.title} | licence_matter(story.said.license)
    told |= {"task_categories": [TASKS[task_of(story)]]} if task_of(story) in TASKS else {}
    return told | {"size_categories": [size], "tags": ["earth-observation", "remote-sensing", "stac", "zarr"]}
