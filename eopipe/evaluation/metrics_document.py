"""The document `metrics.json`: scores of a run as evaluate writes them, checked and typed where they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, Field, model_validator

from eopipe.documents import OPEN, Count, Ends, NotNegative, Number, Share, Text, read_document, read_model
from eopipe.tasks import TASKS
from eopipe.tasks.task import ClassMeasure, Measure
from eopipe.train_options import TaskName

# `simple` predicts the same everywhere: the most frequent class or labels, or the mean of the labels.
Baseline = Literal[
    "extra_trees", "texture_extra_trees", "pixel_baseline", "texture_baseline", "linear", "texture_linear"
]
Method = Literal["model", "simple", Baseline]
# Fewer independent pieces give no interval.
MIN_PIECES = 6
Agreement = Annotated[Number, Field(ge=-1, le=1)]
Explained = Annotated[Number, Field(le=1)]
S = TypeVar("S", bound="_Part")
M = TypeVar("M", bound="MethodScores")


class _Part(BaseModel, **OPEN):
    """Scores, or a part of them."""


class _Scores(_Part):
    def score(self, measure: Measure | ClassMeasure) -> float | None:
        """A score by its key, which must be one of these scores; None where it is undefined."""
        value: float | None = getattr(self, measure)
        return value


class ScoresOfClass(_Scores):
    """Scores of one class; `support` are its test pixels, or the test chips with it."""

    iou: Share | None
    precision: Share | None
    recall: Share | None
    f1: Share | None
    support: Count


class _ScoresOfPixels(ScoresOfClass):
    support: Count = Field(alias="pixels")


class _ScoresOfLabel(ScoresOfClass):
    average_precision: Share | None
    support: Count = Field(alias="chips")
    predicted_chips: Count


class MethodScores(_Scores):
    """Scores of the model or of a baseline; `method` describes a baseline."""

    method: str = ""
    # None is ever assigned, so that dict is safe.
    per_class: dict[str, ScoresOfClass] = {}


class ScoresOfClasses(MethodScores):
    """Scores of a map of classes; `confusion` counts by label (row) and map (column)."""

    accuracy: Share | None
    miou: Share | None
    f1_macro: Share | None
    kappa: Agreement | None
    confusion: list[list[Count]]
    per_class: dict[str, _ScoresOfPixels]  # type: ignore[assignment]


class ScoresOfLabels(MethodScores):
    """Scores of several labels for each chip."""

    f1_micro: Share | None
    f1_macro: Share | None
    subset_accuracy: Share | None
    hamming_loss: Share | None
    mean_average_precision: Share | None
    per_class: dict[str, _ScoresOfLabel]  # type: ignore[assignment]


class ScoresOfValues(MethodScores):
    """Scores of a map of continuous values, in their unit, and R²."""

    rmse: NotNegative | None
    mae: NotNegative | None
    bias: Number | None
    r2: Explained | None


class _FrequentClass(ScoresOfClasses):
    name: str = Field(alias="class")


class _FrequentLabels(ScoresOfLabels):
    labels: list[str]


class _MeanValue(ScoresOfValues):
    value: Number


class ScoreIntervals(_Part):
    """Intervals of the scores and gains by their keys (`iou`, `iou:name`), None below six independent pieces.

    `level` is 0 where no interval was measured. `reason` and `missing` (by score) say why there are none; `range` is
    the distance over which errors are correlated, in pixels, `independent` the number of independent pieces to which
    the test areas amount, by comparison.
    """

    level: Share = 0
    method: str = ""
    independent: dict[str, NotNegative] = {}
    range: NotNegative | None = None
    reason: str = ""
    missing: dict[str, str] = {}
    model: dict[str, Ends | None] = {}
    gain: dict[str, Ends | None] = {}
    texture_gain: dict[str, Ends | None] = {}
    simple_gain: dict[str, Ends | None] = {}


class _ProbabilityIntervals(_Part):
    level: Share
    pieces: Count
    ece: Ends | None
    brier: Ends | None
    nll: Ends | None


class _ReliabilityBin(_Part):
    samples: Count
    confidence: Share
    accuracy: Share


class ProbabilityScores(_Part):
    """How well the probabilities of the map are calibrated in the test areas."""

    ece: Share | None
    brier: NotNegative | None
    nll: NotNegative | None
    confidence: Share | None
    accuracy: Share | None
    description: str
    intervals: _ProbabilityIntervals
    bins: list[_ReliabilityBin]


class _QuarterScores(_Part):
    name: str
    pieces: Count
    scores: dict[str, Number | None]
    intervals: dict[str, Ends | None]


class _SceneScores(_Part):
    scene: str
    date: str
    count: Count
    scores: dict[str, Number | None]


class MemberScores(_Part):
    """Scores of a member of an ensemble by their keys (`iou`, `iou:name`), on `count` test pixels or chips."""

    count: Count
    scores: dict[str, Number | None]

    def score(self, measure: Measure) -> float | None:
        """A score over all classes; None where it is undefined or was not measured."""
        return self.scores.get(measure)


class ScoresOfChange(_Part):
    """Scores of change against no change; `correct_transitions` is a share of the changed pixels, `pixels`."""

    f1: Share | None
    precision: Share | None
    recall: Share | None
    kappa: Agreement | None
    correct_transitions: Number | None
    pixels: Count


class _NoScores(_Part):
    reason: str


class _ChangeAreas(_Part):
    labels: list[list[Number]]
    map_in_test: list[list[Number]]
    map: list[list[Number]]


class _Baselines(_Part, Generic[S]):
    """What is known of each baseline that was fitted; older runs have the two of boosted trees."""

    extra_trees: S | None = None
    texture_extra_trees: S | None = None
    pixel_baseline: S | None = None
    texture_baseline: S | None = None
    linear: S | None = None
    texture_linear: S | None = None

    @property
    def baselines(self) -> dict[Method, S]:
        """Those that were fitted."""
        of_all: dict[Method, S | None] = {key: getattr(self, key) for key in get_args(Baseline)}
        return {key: value for key, value in of_all.items() if value is not None}


class _Choice(_Part):
    """The baseline of headline and gain, by what it was chosen, and why others were left out."""

    name: Baseline
    by: str
    left_out: dict[Baseline, str] = {}


class ChangeScores(_Baselines[ScoresOfChange]):
    """Scores of change of a map of from-to classes by method, and hectares of each transition (before, after)."""

    classes: list[Text]
    model: ScoresOfChange
    post_classification: ScoresOfChange | _NoScores
    majority: ScoresOfChange
    areas: _ChangeAreas


class _LabelledChip(_Part):
    scene: str
    row: Count
    column: Count
    truth: list[str]
    predicted: list[str]


class _LabelPairs(_Part):
    truth: list[list[Count]]
    predicted: list[list[Count]]


class _Tasked(_Part):
    task: TaskName = "segmentation"


class MetricsDocument(_Tasked):
    """What scores of every task have; `count` is the number of test pixels or chips that they rest on.

    `map_pixels` are the pixels of each class on all of the map, `not_mapped` the classes without one; `members` are the
    members of an ensemble in their order.
    """

    classes: Annotated[list[Text], Field(min_length=1)]
    maps: Count
    count: Count
    unit: str = ""
    intervals: ScoreIntervals = ScoreIntervals()
    calibration: ProbabilityScores | None = None
    change: ChangeScores | None = None
    map_pixels: dict[str, Count] = {}
    not_mapped: list[str] = []
    regions: list[_QuarterScores] = []
    scenes: list[_SceneScores] = []
    members: list[MemberScores] = []

    @property
    def sample(self) -> str:
        """What the scores count: pixel or chip."""
        return TASKS[self.task].sample

    def json_document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class ComparedMetrics(MetricsDocument, _Baselines[M], Generic[M]):
    """Scores of a model and of its baselines; `baseline` is the choice of one of them."""

    model: M
    simple: M
    baseline: _Choice | None = None

    @model_validator(mode="after")
    def _check_chosen(self) -> Self:
        if not self.baselines or self.chosen not in self.baselines:
            raise ValueError("the scores of the baseline that was chosen are missing")
        return self

    @property
    def chosen(self) -> Method:
        """The baseline of headline and gain; older runs chose none, so that it is their last one."""
        return self.baseline.name if self.baseline else next(reversed(self.baselines))

    @property
    def compared(self) -> list[Method]:
        """The baselines that the model has a gain over: the chosen one, of older runs all."""
        return [self.chosen] if self.baseline else [*self.baselines]

    def gains(self, key: Method) -> dict[str, Ends | None]:
        """The intervals of the model minus the simple baseline, or one of those that it is compared with."""
        ends: dict[str, Ends | None] = getattr(self.intervals, self.comparison(key))
        return ends

    def comparison(self, key: Method) -> str:
        """The name of the comparison of the model with a baseline among the intervals."""
        if key == "simple":
            return "simple_gain"
        return "gain" if self.baseline or key == "pixel_baseline" else "texture_gain"

    @property
    def methods(self) -> dict[Method, M]:
        """Scores of the model, of the baselines, and of the simple one."""
        return {"model": self.model, **self.baselines, "simple": self.simple}


class ClassMetrics(ComparedMetrics[ScoresOfClasses]):
    """Scores of maps of classes, by pixel or by chip."""

    simple: _FrequentClass = Field(alias="majority")


class _PixelMetrics(ClassMetrics):
    count: Count = Field(alias="test_pixels")


class _ChipMetrics(ClassMetrics):
    count: Count = Field(alias="test_chips")


class LabelMetrics(ComparedMetrics[ScoresOfLabels]):
    """Scores of several labels for each chip; co-occurrence counts chips with both of two classes."""

    simple: _FrequentLabels = Field(alias="majority")
    count: Count = Field(alias="test_chips")
    min_share: Share
    threshold: Share
    cooccurrence: _LabelPairs
    examples: list[_LabelledChip]


class ValueMetrics(ComparedMetrics[ScoresOfValues]):
    """Scores of maps of continuous values; `range` are the lowest and the highest training label."""

    simple: _MeanValue = Field(alias="mean")
    count: Count = Field(alias="test_pixels")
    unit: str
    range: Ends


class FinishedMetrics(MetricsDocument):
    """Scores of the maps of a finished model, which have no baselines."""

    task: Literal["segmentation"] = "segmentation"
    model: ScoresOfClasses
    count: Count = Field(alias="test_pixels")
    reason: str = Field(alias="baselines")
    chosen: ClassVar[None] = None
    compared: ClassVar[tuple[Method, ...]] = ()
    baselines: ClassVar[Mapping[Method, ScoresOfClasses]] = {}

    def gains(self, key: Method) -> dict[str, Ends | None]:  # noqa: ARG002 - of models with baselines
        """None, since nothing is compared."""
        return {}


RunMetrics = ClassMetrics | LabelMetrics | ValueMetrics
AnyMetrics = RunMetrics | FinishedMetrics
# By what is mapped, and what is counted.
KINDS: dict[tuple[str, str], type[RunMetrics]] = {
    ("classes", "pixel"): _PixelMetrics,
    ("classes", "chip"): _ChipMetrics,
    ("labels", "chip"): LabelMetrics,
    ("values", "pixel"): ValueMetrics,
}


def metrics_type(task: str) -> type[RunMetrics]:
    """The type of the scores of a task."""
    return KINDS[TASKS[task].rasters[0], TASKS[task].sample]


def read_metrics(path: Path) -> RunMetrics:
    """What evaluate wrote. Raises BadInputError for another file, with the fields that are wrong."""
    document = read_document(path, _Tasked, "a file of scores, as evaluate writes one")
    return read_model(path, metrics_type(document.get("task", "segmentation")), "a file of scores")


def read_finished_metrics(path: Path) -> FinishedMetrics:
    """What evaluate wrote of the maps of a finished model. Raises BadInputError for another file."""
    return read_model(
        path, FinishedMetrics, "a file of scores of a finished model, as evaluate writes one with --tested-model"
    )
