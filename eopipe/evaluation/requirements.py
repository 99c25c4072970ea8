"""What a map must reach before it is published: scores, gain over baselines, errors of areas."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast, get_args

from eopipe.areas.areas_document import AreasDocument, EstimatedValue
from eopipe.errors import RequirementError, UsageError, did_you_mean
from eopipe.evaluation.metrics_document import AnyMetrics, read_finished_metrics, read_metrics
from eopipe.tasks import LOWER_IS_BETTER, SCORES, TASKS
from eopipe.tasks.task import ClassMeasure, Measure
from eopipe.text_files import read_json

OF_AREAS = ("area_error", "users_accuracy", "producers_accuracy", "overall_accuracy")
OF_CLASSES = (*get_args(ClassMeasure), *OF_AREAS[:3])
OF_MAP = (*dict.fromkeys(score.key for score in SCORES), "gain", "overall_accuracy")
AT_MOST = (*LOWER_IS_BETTER, "area_error")


class Requirement(NamedTuple):
    """A figure, of a class or of the whole map, and the bound that it must reach."""

    figure: str
    of_class: str
    bound: float

    def __str__(self) -> str:
        return f"{self.figure} of {self.of_class}" if self.of_class else self.figure


def parse_requirements(texts: Iterable[str]) -> list[Requirement]:
    """Requirements of texts as iou:forest=0.8 and gain=0. Raises UsageError for figures that no map has."""
    requirements = []
    for text in texts:
        name, _, number = text.rpartition("=")
        figure, _, of_class = name.partition(":")
        known = OF_CLASSES if of_class else OF_MAP
        if figure not in known:
            of_what = "a class" if of_class else "the whole map"
            hint = did_you_mean(figure, known, f"there are {', '.join(known)}")
            raise UsageError(f"evaluate.require has {name}, which is no figure of {of_what}; {hint}")
        try:
            requirements.append(Requirement(figure, of_class, float(number)))
        except ValueError as error:
            raise UsageError(f"evaluate.require has {text}: write a number, as iou:forest=0.8") from error
    return requirements


def check_requirements(texts: Sequence[str], metrics: Path | None, areas: Path | None) -> None:
    """Raise RequirementError with the figures of a map that do not reach what is required.

    Raises UsageError for figures that there are none of: scores without labels, areas without a sample.
    """
    if not texts:
        return
    scores: AnyMetrics | None = None
    if metrics:
        # Why there are no baselines is a text, and only maps of a finished model have none.
        has_baselines = not isinstance(read_json(metrics).get("baselines"), str)
        scores = read_metrics(metrics) if has_baselines else read_finished_metrics(metrics)
    if unmet := [*_unmet(parse_requirements(texts), scores, AreasDocument.read(areas) if areas else None)]:
        raise RequirementError(f"the map is not what evaluate.require asks for: {'; '.join(unmet)}")


def _unmet(
    requirements: Iterable[Requirement], metrics: AnyMetrics | None, areas: AreasDocument | None
) -> Iterator[str]:
    for required in requirements:
        value = _figure(required, metrics, areas)
        is_at_most = required.figure in AT_MOST
        if value is None:
            yield f"{required} is not known here, and must be at {'most' if is_at_most else 'least'} {required.bound:g}"
        elif value > required.bound if is_at_most else value < required.bound:
            yield f"{required} is {value:.4g}, and must be at {'most' if is_at_most else 'least'} {required.bound:g}"


def _figure(required: Requirement, metrics: AnyMetrics | None, areas: AreasDocument | None) -> float | None:
    """The figure of a map; None where it is not defined."""
    figure, of_class = required.figure, required.of_class
    names = areas.classes if figure in OF_AREAS and areas else metrics.classes if metrics else []
    if of_class and names and of_class not in names:
        raise UsageError(f"evaluate.require names the class {of_class}, but there are {', '.join(names)}")
    if figure in OF_AREAS:
        if areas is None:
            raise UsageError(f"evaluate.require has {figure}, which needs evaluate.sample, a labelled sample")
        return _area_figure(figure, areas, of_class)
    if metrics is None:
        raise UsageError(f"evaluate.require has {figure}, but the map has no scores, since it has no labels")
    if of_class:
        return getattr(metrics.model.per_class[of_class], figure, None)
    if figure == "gain":
        main = next(score.key for score in TASKS[metrics.task].scores if score.is_main)
        ends = metrics.gains(metrics.chosen).get(main) if metrics.chosen else None
        return ends[0] if ends else None
    return metrics.model.score(cast(Measure, figure))


def _area_figure(figure: str, areas: AreasDocument, of_class: str) -> float | None:
    if figure == "overall_accuracy":
        return areas.overall_accuracy.estimate if areas.overall_accuracy else None
    row = areas.areas[of_class]
    if figure == "area_error":
        error = row.hectares.standard_error
        return error / row.hectares.estimate if error is not None and row.hectares.estimate else None
    value: EstimatedValue | None = getattr(row, figure)
    return value.estimate if value else None
