"""Scores, maps and provenance as one self-contained page, one map, a model card and a data card."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.ports import FrozenItems, License, ProbabilityMaps

# 3: maps have axes in degrees, and figures are drawn by matplotlib. 4: calibration of the probabilities.
# 5: verdict by the intervals of the gains, scores of each test scene.
# 6: errors of values, continuous colours, scale bars.
# 7: trees with texture and season; the verdict is on the best trees, and "better" only by an interval.
# 8: length of the training; classes that are never predicted or mapped.
# 9: true colour of stacked seasons.
# 10: the scores that have no interval are named; of a chip set a sheet of test chips, titled by the name of the set.
# 11: true colour of bands B04, B03 and B02; why intervals are as wide as they are.
# 13: metres on the ground; gains without an interval, and classes that are never right or hardly mapped; the verdict is
# on the baseline that evaluate chose.
# 14: the architectures of the members of an ensemble.
# 15: no dot of calibration for few samples; equal scores are called equal; marks of sparse labels are enlarged.
REVISION = 15


def report(
    metrics: Annotated[Path, Input("metrics file, as written by evaluate", format="application/json")],
    model: Annotated[Path, Input("trained model", folder=True)],
    chips: Annotated[Path, Input("split file: chips of the train, val and test splits", format="application/json")],
    classes: Annotated[tuple[Path, ...], Input("class maps: one mosaic, or one per scene", format="image/tiff")],
    probabilities: ProbabilityMaps,
    tiles: Annotated[tuple[Path, ...], Input("tile stores, for the quicklook", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store for all scenes, or one per scene", folder=True)],
    page: Annotated[Path, Output("report.html", "report: one self-contained HTML page", format="text/html")],
    picture: Annotated[
        Path,
        Output(
            "map.png",
            "map sheet with axes, legend and scale bar; of a chip set its worst, median and best test chips",
            format="image/png",
        ),
    ],
    model_card: Annotated[
        Path, Output("model-card.md", "model card in the format of Hugging Face", format="text/markdown")
    ],
    data_card: Annotated[
        Path, Output("data-card.md", "data card in the format of Hugging Face", format="text/markdown")
    ],
    *,
    scenes: FrozenItems = (),
    fold_metrics: Annotated[
        tuple[Path, ...], Input("metrics files of the folds of a cross-validation", format="application/json")
    ] = (),
    title: Annotated[str, Option("title of page, map and cards; of a chip set its name, if not given")] = "eopipe run",
    attribution: Annotated[str, Option("credit line of the data, on page and map")] = "",
    use: Annotated[str, Option("intended use of the model, for the model card")] = "",
    limits: Annotated[tuple[str, ...], Option("known limits and unsuitable uses, for the model card")] = (),
    author: Annotated[str, Option("authors to cite for the model")] = "",
    license: License = "",  # noqa: A002 - the word of every catalogue
    colors: Annotated[
        tuple[str, ...],
        Option(
            "colour of each class as #rrggbb; a colour-blind-safe palette if not given", pattern=r"^#[0-9A-Fa-f]{6}$"
        ),
    ] = (),
) -> None:
    """Write the report of a run (scores, maps, training, data, provenance), a map sheet, a model card and a data card.

    The page needs neither network nor scripts; large maps are decimated, at most six are included. Raises
    BadInputError for maps, splits and scores that do not belong together, UsageError for colors that do not
    match the classes.
    """
    from eopipe.evaluation.maps import check_whole
    from eopipe.publish import publish
    from eopipe.reporting import cards
    from eopipe.reporting.page import render, write_picture
    from eopipe.reporting.run_data import AuthorStatements, ReportInputs, read_run

    check_whole(classes)
    inputs = ReportInputs(metrics, model, chips, classes, probabilities, tiles, labels, scenes, fold_metrics)
    run = read_run(inputs, title, attribution, colors, AuthorStatements(use, limits, author, license))
    of_model, of_data = cards.model_card(run), cards.data_card(run)
    with (
        publish(page) as page_draft,
        publish(picture) as picture_draft,
        publish(model_card) as model_draft,
        publish(data_card) as data_draft,
    ):
        page_draft.write_text(render(run, (of_model, of_data)), encoding="utf-8")
        write_picture(picture_draft, run)
        for card, draft in ((of_model, model_draft), (of_data, data_draft)):
            draft.write_text(cards.markdown(card), encoding="utf-8", newline="\n")
