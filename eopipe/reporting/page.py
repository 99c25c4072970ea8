"""The page as HTML: everything inline, nothing from the network, no script."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from eopipe import __version__
from eopipe.reporting import data_tables, scores
from eopipe.reporting.cards import Card
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.palette import CONFIDENCE_COLORS, SPLIT_COLORS
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED
from eopipe.reporting.run_data import RunData
from eopipe.reporting.wording import format_score, plural, scored_size, scored_unit

TEMPLATE, STYLE = "page.html", "style.css"


def render(run: RunData, cards: tuple[Card, ...]) -> str:
    """The page with the cards in it; every text from outside is escaped."""
    environment = Environment(
        loader=FunctionLoader(_source), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"plural": plural}
    return environment.get_template(TEMPLATE).render(_context(run) | _scores(run) | {"cards": cards})


def _source(name: str) -> str:
    return (files("eopipe.reporting") / name).read_text(encoding="utf-8")


def _context(run: RunData) -> dict[str, Any]:
    outliers = set(run.quality.outliers)
    return {
        "run": run,
        "version": __version__,
        "style": _source(STYLE),
        "gap": data_tables.gap_text(run.split, run.pairs),
        "scored_size": scored_size(run.metrics),
        "unit": scored_unit(run.metrics),
        "legend": dict(zip(run.legend, run.colors, strict=True)),
        "confidence_colors": ", ".join(CONFIDENCE_COLORS),
        "split_legend": dict(zip(("train", "validation", "test"), SPLIT_COLORS, strict=True)),
        "ridge_charts": [ridge_chart(band, run.quality.scenes, outliers) for band in run.quality.bands],
        "tables": _tables(run),
    }


def _scores(run: RunData) -> dict[str, Any]:
    """What differs between maps of classes and of values; the latter have no confusion matrix and no confidence."""
    if run.scale:
        return {
            "verdict": scores.value_verdict(run.metrics),
            "measures": [name for _, name in scores.VALUE_MEASURES],
            "methods": scores.value_method_rows(run.metrics),
            "charts": scores.value_training_charts(run.history),
            "best_epoch": scores.value_best_epoch(run.history, run.scale.unit),
            "error_legend": {},
            "class_balance": [],
        }
    return {
        "verdict": scores.verdict(run.metrics),
        "measures": [name for _, name in scores.MEASURES],
        "methods": scores.method_rows(run.metrics),
        "charts": scores.training_charts(run.history),
        "best_epoch": scores.best_epoch(run.history),
        "confusion": scores.confusion_rows(run.metrics),
        "per_class": scores.class_rows(run.metrics),
        "chance": format_score(1 / max(len(run.classes), 2)),
        "error_legend": {"correct": CORRECT, "incorrect": INCORRECT, "outside the test area": UNTESTED},
        "class_balance": scores.class_balance(run.split, run.colors),
    }


def _tables(run: RunData) -> dict[str, Any]:
    return {
        "scenes": data_tables.scene_rows(run.items, run.pairs, run.quality.outliers, run.split),
        "pixels": data_tables.pixel_rows(run.split),
        "chips": data_tables.chip_rows(run.split),
        "gaps": data_tables.gap_rows(run.split, run.pairs),
        "plan": data_tables.plan_rows(run.split),
        "model": data_tables.model_rows(run.model),
        "licences": data_tables.licences(run.items),
        "citations": data_tables.citations(run.items),
        "credits": data_tables.credit_lines(run.items),
        "findings": data_tables.finding_rows(run.split),
    }
