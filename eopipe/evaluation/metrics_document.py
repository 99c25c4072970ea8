"""The document `metrics.json`: scores of a run as evaluate writes them, checked and typed where they are read."""

from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from eopipe.documents import OPEN, Count, Number, Text, read_document, read_model
from eopipe.tasks import TASKS
from eopipe.tasks.task import ClassMeasure, Measure
from eopipe.train_options import TaskName

# `simple` predicts the same everywhere: the most frequent class or labels, or the mean of the labels.
Method = Literal["model", "pixel_baseline", "texture_baseline", "simple"]
# Fewer independent pieces give no interval.
MIN_PIECES = 6
# The intervals of the model minus a baseline.
GAINS: dict[Method, str] = {"pixel_baseline": "gain", "texture_baseline": "texture_gain", "simple": "simple_gain"}
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Part(BaseModel):
    model_config = OPEN


class _Scores(_Part):
    def score(self, measure: Measure | ClassMeasure) -> float | None:
        """A score by its key, which must be one of these scores; None where it is undefined."""
        value: float | None = getattr(self, measure)
        return value


class ScoresOfClass(_Scores):
    """Scores of one class; `support` are its test pixels, or the test chips with it."""

    iou: Number | None
    precision: Number | None
    recall: Number | None
    f1: Number | None
    support: Count


class _ScoresOfPixels(ScoresOfClass):
    support: Count = Field(alias="pixels")


class _ScoresOfLabel(ScoresOfClass):
    average_precision: Number | None
    support: Count = Field(alias="chips")
    predicted_chips: Count


class MethodScores(_Scores):
    """Scores of the model or of a baseline; `method` describes a baseline of trees."""

    method: str = ""
    # None is ever assigned, so that dict is safe.
    per_class: dict[str, ScoresOfClass] = {}


class ScoresOfClasses(MethodScores):
    """Scores of a map of classes; `confusion` counts by label (row) and map (column)."""

    accuracy: Number | None
    miou: Number | None
    f1_macro: Number | None
    kappa: Number | None
    confusion: list[list[Count]]
    per_class: dict[str, _ScoresOfPixels]  # type: ignore[assignment]


class ScoresOfLabels(MethodScores):
    """Scores of several labels for each chip."""

    f1_micro: Number | None
    f1_macro: Number | None
    subset_accuracy: Number | None
    hamming_loss: Number | None
    mean_average_precision: Number | None
    per_class: dict[str, _ScoresOfLabel]  # type: ignore[assignment]


class ScoresOfValues(MethodScores):
    """Scores of a map of continuous values, in their unit, and R²."""

    rmse: Number | None
    mae: Number | None
    bias: Number | None
    r2: Number | None


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

    level: Number = 0
    method: str = ""
    independent: dict[str, Number] = {}
    range: Number | None = None
    reason: str = ""
    missing: dict[str, str] = {}
    model: dict[str, Ends | None] = {}
    gain: dict[str, Ends | None] = {}
    texture_gain: dict[str, Ends | None] = {}
    simple_gain: dict[str, Ends | None] = {}

    def gains(self, baseline: Method) -> dict[str, Ends | None]:
        """The intervals of the model minus a baseline."""
        ends: dict[str, Ends | None] = getattr(self, GAINS[baseline])
        return ends


class _ProbabilityIntervals(_Part):
    level: Number
    pieces: Count
    ece: Ends | None
    brier: Ends | None
    nll: Ends | None


class _ReliabilityBin(_Part):
    samples: Count
    confidence: Number
    accuracy: Number


class ProbabilityScores(_Part):
    """How well the probabilities of the map are calibrated in the test areas."""

    ece: Number | None
    brier: Number | None
    nll: Number | None
    confidence: Number | None
    accuracy: Number | None
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

    f1: Number | None
    precision: Number | None
    recall: Number | None
    kappa: Number | None
    correct_transitions: Number | None
    pixels: Count


class _NoScores(_Part):
    reason: str


class _ChangeAreas(_Part):
    labels: list[list[Number]]
    map_in_test: list[list[Number]]
    map: list[list[Number]]


class ChangeScores(_Part):
    """Scores of change of a map of from-to classes by method, and hectares of each transition (before, after)."""

    classes: list[Text]
    model: ScoresOfChange
    pixel_baseline: ScoresOfChange
    texture_baseline: ScoresOfChange
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


S = TypeVar("S", bound=MethodScores)


class ComparedMetrics(MetricsDocument, Generic[S]):
    """Scores of a model and of its baselines."""

    model: S
    pixel_baseline: S
    texture_baseline: S | None = None
    simple: S

    @property
    def trees(self) -> dict[Method, S]:
        """Scores of the tree baselines that were fitted."""
        trees: dict[Method, S] = {"pixel_baseline": self.pixel_baseline}
        return trees | ({"texture_baseline": self.texture_baseline} if self.texture_baseline else {})

    @property
    def methods(self) -> dict[Method, S]:
        """Scores of the model, of the trees, and of the simple baseline."""
        return {"model": self.model, **self.trees, "simple": self.simple}


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
    min_share: Number
    threshold: Number
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
    baselines: str


RunMetrics = ClassMetrics | LabelMetrics | ValueMetrics
AnyMetrics = RunMetrics | FinishedMetrics
KINDS: dict[str, type[RunMetrics]] = {
    "segmentation": _PixelMetrics,
    "classification": _ChipMetrics,
    "multilabel": LabelMetrics,
    "regression": ValueMetrics,
}


def read_metrics(path: Path) -> RunMetrics:
    """What evaluate wrote. Raises BadInputError for another file, with the fields that are wrong."""
    document = read_document(path, _Tasked, "a file of scores, as evaluate writes one")
    return read_model(path, KINDS[document.get("task", "segmentation")], "a file of scores")


def read_finished_metrics(path: Path) -> FinishedMetrics:
    """What evaluate wrote of the maps of a finished model. Raises BadInputError for another file."""
    return read_model(
        path, FinishedMetrics, "a file of scores of a finished model, as evaluate writes one with --tested-model"
    )
