"""Put the page together: everything inline, nothing from the network, no script."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from eopipe import __version__
from eopipe.reporting import data_tables as facts
from eopipe.reporting import scores as tables
from eopipe.reporting.cards import Card
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.palette import CONFIDENCE_COLORS, SPLIT_COLORS
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED
from eopipe.reporting.run_data import Story, ground_words
from eopipe.reporting.wording import count, counted, plural, score, tested

TEMPLATE, STYLE = "page.html", "style.css"


def render(story: Story, cards: tuple[Card, ...]) -> str:
    """Write the page as HTML, with the cards in it; every text from outside is escaped."""
    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"count": count, "plural": plural}
    return environment.get_template(TEMPLATE).render(_context(story) | {"cards": cards})


def _source(name: str) -> str:
    return (files("eopipe.reporting") / name).read_text(encoding="utf-8")


def _context(story: Story) -> dict[str, Any]:
    return _scores(story) | {
        "story": story,
        "version": __version__,
        "style": _source(STYLE),
        "gap": facts.gap_words(story.split, story.pairs),
        "tested": tested(story.metrics),
        "counted": counted(story.metrics),
        "swatches_of_classes": dict(zip(story.legend, story.colors, strict=True)),
        "ramp": ", ".join(CONFIDENCE_COLORS),
        "roles": dict(zip(("train", "validation", "test"), SPLIT_COLORS, strict=True)),
        "ground": ground_words(story),
        "ridges": [ridge_chart(band, story.quality.looks, set(story.quality.drifted)) for band in story.quality.bands],
        "facts": _tables(story),
    }


def _scores(story: Story) -> dict[str, Any]:
    """What differs between classes and values; those have neither a confusion nor a chance."""
    if story.scale:
        return {
            "verdict": tables.value_verdict(story.metrics),
            "measures": [name for _, name in tables.VALUE_MEASURES],
            "methods": tables.value_method_lines(story.metrics),
            "charts": tables.value_training_charts(story.history),
            "best": tables.value_best_epoch(story.history, story.scale.unit),
            "marks": {},
            "balance": [],
        }
    return {
        "verdict": tables.verdict(story.metrics),
        "measures": [name for _, name in tables.MEASURES],
        "methods": tables.method_lines(story.metrics),
        "charts": tables.training_charts(story.history),
        "best": tables.best_epoch(story.history),
        "confusion": tables.confusion_lines(story.metrics),
        "per_class": tables.class_lines(story.metrics),
        "chance": score(1 / max(len(story.classes), 2)),
        "marks": {"correct": CORRECT, "incorrect": INCORRECT, "outside the test area": UNTESTED},
        "balance": tables.balance(story.split, story.colors),
    }


def _tables(story: Story) -> dict[str, Any]:
    return {
        "scenes": facts.scene_rows(story.items, story.pairs, story.quality.drifted, story.split),
        "pixels": facts.pixel_rows(story.split),
        "fates": facts.fate_rows(story.split),
        "gaps": facts.gap_rows(story.split, story.pairs),
        "plan": facts.plan_rows(story.split),
        "model": facts.model_rows(story.model),
        "licences": facts.licences(story.items),
        "citations": facts.citations(story.items),
        "credits": facts.credits_of(story.items),
        "findings": facts.finding_rows(story.split),
    }
