"""The trials that continue after a part of their trainings."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output

NEEDS = ("validation_places",)


def promote(
    models: Annotated[
        tuple[Path, ...],
        Input("model folders of the trials, trained up to the same share of their steps", folder=True, nested=True),
    ],
    rung: Annotated[
        Path, Output("rung.json", "trials that continue, and the scores of all", format="application/json")
    ],
    *,
    count: Annotated[int, Option("number of trials that continue", ge=1, of_job=True)],
    previous: Annotated[
        Path | None, Input("rung before this one; only trials that it promoted continue", format="application/json")
    ] = None,
) -> None:
    """Name the best trials at a rung of successive halving; the trainings of the others are stopped there.

    Each trial is scored by its last validation, with the score that selects the best weights of a training: mIoU, macro
    F1 for several labels, RMSE for regression. A trial without a defined score follows those with one; of equal scores
    the model with fewer weights is better, then the first in the order of the models. Trials that the rung before did
    not promote are the last. The same inputs give the same file. Raises UsageError for two model folders of one name,
    BadInputError for a model that was never validated and where no trial has a defined score.
    """
    from eopipe.evaluation.rungs import rank_rung
    from eopipe.publish import publish
    from eopipe.text_files import write_json

    ranked = rank_rung(models, count, previous)
    with publish(rung) as draft:
        write_json(draft, ranked.model_dump())
