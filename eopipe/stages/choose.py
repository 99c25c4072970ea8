"""The best of several trials, by its map of the validation places."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.train_options import RankingScore

# 2: groups are the pieces of intervals where they are split. 3: maps of a chip set are a sheet of its chips.
# 4: regions are pieces too, and groups where there are few. 5: tables of the page have names that differ.
REVISION = 5
NEEDS = ("validation_places", "score_of_task")


def choose(
    models: Annotated[tuple[Path, ...], Input("model folders, one for each trial", folder=True, nested=True)],
    classes: Annotated[
        tuple[Path, ...],
        Input(
            "maps of classes or values, the same number for each model, in the order of the models",
            format="image/tiff",
            nested=True,
        ),
    ],
    tiles: Annotated[tuple[Path, ...], Input("tile stores that were mapped", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)],
    chips: Annotated[Path, Input("split file: chips of the train, val and test splits", format="application/json")],
    model: Annotated[Path, Output("model", "model folder with the best score, and with trials.json", folder=True)],
    leaderboard: Annotated[
        Path, Output("trials.json", "scores of all trials, the best first", format="application/json")
    ],
    page: Annotated[Path, Output("trials.html", "the leaderboard as one HTML page", format="text/html")],
    *,
    score: Annotated[
        RankingScore | None,
        Option(
            "score that ranks the trials; lower is better for rmse, mae and hamming_loss (default: miou; f1_macro for "
            "multilabel, rmse for regression)"
        ),
    ] = None,
    rungs: Annotated[
        tuple[Path, ...],
        Input("rungs of the trials; the model is not one of the trials that they stopped", format="application/json"),
    ] = (),
) -> None:
    """Choose the model with the best score in the validation places among trials of other hyper-parameters.

    All trials have the same tiles, labels and split. Each map is scored on the validation places that all maps have,
    and each difference to the winner has a paired confidence interval: where that contains 0, the trials are not
    significantly different. Among equal scores the model with fewer weights is chosen. Trials that were stopped at a
    rung are listed below the others and are never chosen. The test places are not read, so that the winner's scores
    there are of places that chose nothing. Raises UsageError for a score that the task does not have, BadInputError
    where no trial has a defined score or all were stopped.
    """
    from eopipe.evaluation.trials import LEADERBOARD, rank_trials
    from eopipe.publish import link_or_copy, publish
    from eopipe.reporting.page import render_trials
    from eopipe.text_files import write_json

    ranked = rank_trials(models, classes, tiles, labels, chips, score, rungs)
    with publish(model, folder=True) as folder, publish(leaderboard) as document, publish(page) as draft:
        # Not linked: an engine may change the times of its outputs, and the times of the trials must stay.
        link_or_copy(ranked.winner.folder, folder, link=False)
        # The model says how it was chosen, and is another output than the training's.
        write_json(folder / LEADERBOARD, ranked.json_document())
        write_json(document, ranked.json_document())
        draft.write_text(render_trials(ranked), encoding="utf-8")
