"""What a run is about, in a few words: its task, collections and dates."""

from eopipe.reporting import data_tables as facts
from eopipe.reporting.run_data import Story
from eopipe.reporting.wording import listed


def task_of(story: Story) -> str:
    """What is learned."""
    return str(story.metrics.get("task", "segmentation"))


def collections(story: Story) -> str:
    """The collections of the scenes."""
    return listed(sorted({str(item.get("collection") or "an unnamed collection") for item in story.items}))


def span_words(story: Story) -> str:
    """First and last day of the scenes."""
    days = sorted(facts.dates(story.items).values())
    return f"{days[0]} to {days[-1]}" if days else "unknown dates"
