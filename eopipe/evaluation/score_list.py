"""The scores of each task: one list, from which tables, verdict, cards, comparisons and the choice among trials follow.

Another score is a row here, its formula in `eopipe.evaluation.measures` and `eopipe.training.metrics`, and a test.
"""

from dataclasses import dataclass

from eopipe.evaluation.metrics_document import Measure


@dataclass(frozen=True)
class NamedScore:
    """A score over all classes: its key in a metrics file, and its title in tables.

    Trials can be ranked by it where `can_rank`, by default by the one that is `main`; the verdict on a model compares
    those `in_verdict`. `has_unit`: it is in the unit of the labels; `hub` is its name in a model card of a hub.
    """

    key: Measure
    title: str
    is_main: bool = False
    can_rank: bool = True
    in_verdict: bool = False
    is_lower_better: bool = False
    has_unit: bool = False
    hub: str = ""

    @property
    def name(self) -> str:
        """The title within a sentence.

        >>> NamedScore("f1_micro", "Micro F1").name, NamedScore("rmse", "RMSE").name
        ('micro F1', 'RMSE')
        """
        return self.title if self.title.isupper() else self.title[0].lower() + self.title[1:]


OF_CLASSES = (
    NamedScore("accuracy", "Accuracy", in_verdict=True, hub="accuracy"),
    NamedScore("miou", "mIoU", is_main=True, in_verdict=True, hub="mean_iou"),
    NamedScore("f1_macro", "Macro F1", hub="f1"),
    NamedScore("kappa", "Kappa"),
)
OF_LABELS = (
    NamedScore("f1_micro", "Micro F1", in_verdict=True),
    NamedScore("f1_macro", "Macro F1", is_main=True, in_verdict=True, hub="f1"),
    NamedScore("subset_accuracy", "Subset accuracy"),
    NamedScore("hamming_loss", "Hamming loss", is_lower_better=True),
    # It needs the maps of probabilities.
    NamedScore("mean_average_precision", "mAP", can_rank=False),
)
OF_VALUES = (
    NamedScore("rmse", "RMSE", is_main=True, in_verdict=True, is_lower_better=True, has_unit=True, hub="rmse"),
    NamedScore("mae", "MAE", is_lower_better=True, has_unit=True, hub="mae"),
    NamedScore("bias", "Bias", can_rank=False, has_unit=True),
    NamedScore("r2", "R²"),
)
SCORES: dict[str, tuple[NamedScore, ...]] = {
    "segmentation": OF_CLASSES,
    "classification": OF_CLASSES,
    "multilabel": OF_LABELS,
    "regression": OF_VALUES,
}
LOWER_IS_BETTER = {score.key for of_task in SCORES.values() for score in of_task if score.is_lower_better}
HAVE_UNIT = {score.key for of_task in SCORES.values() for score in of_task if score.has_unit}


def ranking_scores(task: str) -> list[str]:
    """The keys of the scores by which trials of a task can be ranked, the default first."""
    scores = [score for score in SCORES[task] if score.can_rank]
    return [score.key for score in sorted(scores, key=lambda score: not score.is_main)]
