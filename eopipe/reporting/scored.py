"""The scores of a run with their intervals, as a part of the model card."""

from eopipe.reporting import scores as tables
from eopipe.reporting import values
from eopipe.reporting.cards import Part, Table
from eopipe.reporting.data_tables import Row
from eopipe.reporting.run_data import Story
from eopipe.reporting.wording import DASH, count, counted, percent, tested


def scores_part(story: Story) -> Part:
    """Scores of the map, of each class and of each quarter."""
    found = story.metrics.get("intervals") or {}
    text = [f"On {tested(story.metrics)} of the published map, in places that no training chip touches."]
    if found:
        text.append(
            f"Intervals of {percent(found['level'])}: {found['method']}; {found['pieces']} pieces, "
            f"{found['draws']} draws."
        )
    rows = (_overall(story), _classes(story), _regions(story))
    return Part("Scores", text=tuple(text), tables=rows)


def measures_of(story: Story) -> tuple[tuple[str, str], ...]:
    """The keys of the scores and their names."""
    return values.MEASURES if story.scale else tables.MEASURES


def _overall(story: Story) -> Table:
    found = story.metrics.get("intervals") or {}
    mine, other = story.metrics["model"], story.metrics["pixel_baseline"]
    rows: list[Row] = [
        (
            name,
            _figure(mine[key]),
            _interval(found.get("model", {}).get(key)),
            _figure(other[key]),
            _interval(found.get("gain", {}).get(key)),
        )
        for key, name in measures_of(story)
    ]
    heads = ("Measure", "Model", "Interval", "Per-pixel baseline", "Model less baseline")
    return Table(f"Scores{_unit(story)}", heads, rows)


def _unit(story: Story) -> str:
    return f" in {story.scale.unit}" if story.scale and story.scale.unit else ""


def _classes(story: Story) -> Table:
    """IoU, precision and recall of each class with their intervals; nothing of values."""
    found, rows = (story.metrics.get("intervals") or {}).get("model", {}), []
    known = story.metrics["model"].get("per_class", {})
    for name in known and story.classes:
        each = known[name]
        cells = [f"{_figure(each[k])} {_interval(found.get(f'{k}:{name}'))}" for k in ("iou", "precision", "recall")]
        rows.append((name, *cells, count(each["pixels"])))
    heads = ("Class", "IoU", "Precision", "Recall", f"Test {counted(story.metrics)}s")
    return Table("Each class, with intervals", heads, rows)


def _regions(story: Story) -> Table:
    shown = measures_of(story)[:2]
    rows = [
        (
            region["name"],
            *(f"{_figure(region['scores'][key])} {_interval(region['intervals'].get(key))}" for key, _ in shown),
            count(region["pieces"]),
        )
        for region in story.metrics.get("regions", [])
    ]
    heads = ("Region", *(name for _, name in shown), "Pieces")
    return Table("Each quarter of the test places, with intervals where there are pieces enough", heads, rows)


def _figure(value: float | None) -> str:
    return DASH if value is None else f"{value:.4g}"


def _interval(ends: list[float] | None) -> str:
    return f"({ends[0]:.4g} to {ends[1]:.4g})" if ends else f"({DASH})"
