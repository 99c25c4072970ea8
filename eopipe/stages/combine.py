"""An ensemble of several trainings, as one model."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Output

NEEDS = ("different_members",)


def combine(
    models: Annotated[
        tuple[Path, ...], Input("model folders, one for each member of the ensemble", folder=True, nested=True)
    ],
    model: Annotated[Path, Output("model", "model folder of the ensemble", folder=True)],
) -> None:
    """Combine models with other seeds, or of several kinds, into one whose prediction is the mean of theirs.

    The members were trained on the same data. Probabilities are averaged, not logits; of a regression
    the values (deep ensembles, Lakshminarayanan et al. 2017, arXiv:1612.01474). The folder is like a training's,
    with all weights in one file, and every stage takes it as that. No code of a custom model is run. Raises UsageError
    for fewer than two members or more than 64, BadInputError for models of other data, with the same weights, or of two
    custom classes.
    """
    from eopipe.models.combine import read_members, write_ensemble
    from eopipe.publish import publish

    members = read_members(models)
    with publish(model, folder=True) as draft:
        write_ensemble(members, draft)
