"""What a run's scores do not show."""

from collections.abc import Iterator

from eopipe.reporting.distances import length, pixel_metres
from eopipe.reporting.run_data import Story
from eopipe.reporting.spans import span_words
from eopipe.reporting.wording import count, counted

# Scores of a class below this share of the test places rest on little.
RARE = 0.01


def limits_of(story: Story) -> Iterator[str]:
    """What a person said, and what follows from how the run was tested."""
    yield from story.said.limits
    grid = story.pairs[0][0].grid
    wide, high = (edge * side for edge, side in zip(grid.shape[::-1], pixel_metres(grid), strict=True))
    yield f"Tested in one area of {length(wide)} by {length(high)}; nothing is known of other places."
    yield f"Scenes of {span_words(story)} only; other years and seasons were not tested."
    yield "The scores compare with labels, whose own errors are not known here."
    yield from _doubts(story)


def _doubts(story: Story) -> Iterator[str]:
    found = story.metrics.get("intervals") or {}
    if not found:
        yield "No interval could be made: the test places fall into fewer than two pieces."
    elif found["edge"]:
        yield "Labels that are alike over more than a piece make the intervals too narrow."
    gain = found.get("gain", {}).get("rmse" if story.scale else "miou")
    if gain and gain[0] <= 0 <= gain[1]:
        yield "Whether it is better than the per-pixel baseline is not certain: the interval of the gain holds 0."
    if story.split["audit"]["gap_pixels"].get("train-test") == 0:
        yield "Training and test chips touch, so the scores may be somewhat too good."
    for finding in story.split["audit"].get("allowed") or []:
        yield f"The audit of the splits found {finding['kind']} {finding['count']} times; allowed: {finding['reason']}."
    each = story.metrics["model"].get("per_class", {})
    total = sum(row["pixels"] for row in each.values())
    for name, row in each.items():
        if row["pixels"] < RARE * total:
            yield f"Class {name} has {count(row['pixels'])} test {counted(story.metrics)}s, so its scores say little."
