"""One model of several trainings, or those of them that continue."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.arguments import check_uses
from eopipe.contract import Input, Option, Output, stage
from eopipe.train_options import RankingScore

# 2: groups are the pieces of intervals where they are split. 3: maps of a chip set are a sheet of its chips.
# 4: regions are pieces too, and groups where there are few. 5: tables of the page have names that differ.
REVISION = 5
NEEDS = ("validation_places", "score_of_task", "different_members")
# The ports that each reducer needs beside the models, and those that it may have.
USES = {
    "reducer": {
        "best": (("classes", "tiles", "labels", "chips", "model", "leaderboard", "page"), ("score", "rungs")),
        "halving": (("rung", "count"), ("previous",)),
        "mean": (("model",), ()),
    }
}


def choose(
    models: Annotated[tuple[Path, ...], Input("model folders of trials or members", folder=True, nested=True)],
    classes: Annotated[
        tuple[Path, ...], Input("maps, as many for each model, in their order", format="image/tiff", nested=True)
    ] = (),
    tiles: Annotated[tuple[Path, ...], Input("tile stores that were mapped", folder=True)] = (),
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)] = (),
    chips: Annotated[Path | None, Input("split file, with validation places", format="application/json")] = None,
    model: Annotated[Path | None, Output("model", "model folder, with trials.json of the best", folder=True)] = None,
    leaderboard: Annotated[Path | None, Output("trials.json", "scores of trials", format="application/json")] = None,
    page: Annotated[Path | None, Output("trials.html", "leaderboard as one HTML page", format="text/html")] = None,
    rung: Annotated[Path | None, Output("rung.json", "trials that continue", format="application/json")] = None,
    *,
    reducer: Annotated[
        Literal["best", "halving", "mean"],
        Option("what is made of them: the best trial, a rung of those that continue, or an ensemble", of_job=True),
    ] = "best",
    score: Annotated[
        RankingScore | None,
        Option(
            "score that ranks the trials; lower is better for rmse, mae and hamming_loss (default: miou; f1_macro for "
            "multilabel, rmse for regression)"
        ),
    ] = None,
    rungs: Annotated[
        tuple[Path, ...], Input("rungs of the trials; what they stopped is not chosen", format="application/json")
    ] = (),
    count: Annotated[int | None, Option("number of trials that continue", ge=1, of_job=True)] = None,
    previous: Annotated[
        Path | None, Input("rung before this one; only trials that it promoted continue", format="application/json")
    ] = None,
) -> None:
    """Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their mean.

    `best` needs maps of the trials and what they are scored by, and makes model, leaderboard and page. Each map is
    scored on the validation places that all maps have, with a paired confidence interval of each difference to the
    winner: where that contains 0, the trials are not significantly different. Among equal scores the model with fewer
    weights is chosen; trials that were stopped at a rung are never. The test places are not read, and choose nothing.

    `halving` makes a rung of `count` trials from models that are trained up to the same share of their steps. Each is
    scored by its last validation, with the score that selects the best weights of a training; one without a defined
    score follows those with one; of equal scores the model with fewer weights is better, then the first in the order of
    the models. Trials that the rung before did not promote are the last.

    `mean` makes one model of members with other seeds, or of several kinds, that were trained on the same data.
    Probabilities are averaged, not logits; of a regression the values (deep ensembles, Lakshminarayanan et al. 2017,
    arXiv:1612.01474). Every stage takes it as a training's. No code of a custom model is run.

    Raises UsageError for what a reducer lacks or does not use, models of one name, and a wrong score or number of
    members; BadInputError for models that do not belong together, and where none has a defined score.
    """
    check_uses(stage("choose"), locals())
    from eopipe.publish import link_or_copy, publish
    from eopipe.text_files import write_json

    if reducer == "halving" and rung and count:
        from eopipe.evaluation.trials import rank_rung

        promoted = rank_rung(models, count, previous)
        with publish(rung) as draft:
            write_json(draft, promoted.model_dump())
    elif reducer == "mean" and model:
        from eopipe.models.combine import read_members, write_ensemble

        members = read_members(models)
        with publish(model, folder=True) as draft:
            write_ensemble(members, draft)
    elif chips and model and leaderboard and page:
        from eopipe.evaluation.trials import LEADERBOARD, rank_trials
        from eopipe.reporting.page import render_trials

        ranked = rank_trials(models, classes, tiles, labels, chips, score, rungs)
        with publish(model, folder=True) as folder, publish(leaderboard) as document, publish(page) as draft:
            # Not linked: an engine may change the times of its outputs, and the times of the trials must stay.
            link_or_copy(ranked.winner.folder, folder, link=False)
            # The model says how it was chosen, and is another output than the training's.
            write_json(folder / LEADERBOARD, ranked.json_document())
            write_json(document, ranked.json_document())
            draft.write_text(render_trials(ranked), encoding="utf-8")
