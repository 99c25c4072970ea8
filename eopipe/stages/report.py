"""Maps, scores and provenance as one self-contained page, a map sheet, and of a training a model and a data card."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from eopipe.contract import Input, Option, Output
from eopipe.errors import UsageError
from eopipe.ports import AnyModel, FrozenItems, License, ProbabilityMaps

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
# 16: maps of a finished model have the same page, and scores of a class their intervals.
REVISION = 16


def report(
    model: AnyModel,
    classes: Annotated[tuple[Path, ...], Input("class maps: one mosaic, or one per scene", format="image/tiff")],
    probabilities: ProbabilityMaps,
    tiles: Annotated[tuple[Path, ...], Input("tile stores that the maps were predicted from", folder=True)],
    page: Annotated[Path, Output("report.html", "report: one self-contained HTML page", format="text/html")],
    picture: Annotated[
        Path,
        Output(
            "map.png",
            "map sheet with axes, legend and scale bar; of a chip set its worst, median and best test chips",
            format="image/png",
        ),
    ],
    *,
    metrics: Annotated[
        Path | None, Input("scores of the maps, as evaluate writes them", format="application/json")
    ] = None,
    chips: Annotated[
        Path | None,
        Input("split file of the training; a map of a finished model has none", format="application/json"),
    ] = None,
    labels: Annotated[
        tuple[Path, ...],
        Input("label stores of the scores: one for all scenes, or one per scene", folder=True),
    ] = (),
    model_card: Annotated[
        Path | None,
        Output("model-card.md", "model card of a training in the format of Hugging Face", format="text/markdown"),
    ] = None,
    data_card: Annotated[
        Path | None,
        Output("data-card.md", "data card of a training in the format of Hugging Face", format="text/markdown"),
    ] = None,
    status: Annotated[
        Path | None,
        Output(
            "status.json",
            "of a finished model's map: areas, missing classes, and inputs that are unlike the training inputs",
            format="application/json",
        ),
    ] = None,
    scenes: FrozenItems = (),
    fold_metrics: Annotated[
        tuple[Path, ...], Input("metrics files of the folds of a cross-validation", format="application/json")
    ] = (),
    areas: Annotated[
        Path | None, Input("areas of the classes, as estimate writes them", format="application/json")
    ] = None,
    title: Annotated[
        str, Option("title of page, map, cards, catalog and crate; of a chip set its name, if not given", min_length=1)
    ] = "eopipe run",
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

    The page needs neither network nor scripts; large maps are decimated, at most six are included. A report of a
    training has its split, labels and scores, and can have cards. Without a split the maps are of a finished model: the
    page has the area of each class and the inputs beside the training inputs, and warns of another season, sensor or
    processing baseline, and of bands of which more than a tenth of the pixels are beyond the 1 % and 99 % quantiles of
    the training. Where labels test these maps it has their scores, and the test scores of the model where its folder
    has them, as `eopipe init --from` of a run copies them (`test-scores.json`).

    Raises BadInputError for maps, model, tiles, splits and scores that do not belong together, UsageError for colors
    that do not match the classes, and for a split, labels or cards without what belongs to them.
    """
    from eopipe.inference.finished_maps import check_whole
    from eopipe.publish import publish
    from eopipe.reporting import cards
    from eopipe.reporting.finished_run import finished_parts, read_finished_run
    from eopipe.reporting.page import render, training_parts
    from eopipe.reporting.run_data import AuthorStatements, MappedRun, ReportInputs, read_run
    from eopipe.text_files import write_json

    check_whole(classes)
    inputs = ReportInputs(model, classes, probabilities, tiles, metrics, chips, labels, scenes, fold_metrics, areas)
    statements = AuthorStatements(title, attribution, colors, use, limits, author, license)
    document: dict[str, Any] = {}
    if chips and status:
        raise UsageError("--status is of the map of a finished model, and --chips is the split of a training")
    if chips:
        run: MappedRun = (trained := read_run(inputs, statements))
        parts, both = training_parts(trained), [cards.model_card(trained), cards.data_card(trained)]
    elif model_card or data_card:
        raise UsageError("--model-card and --data-card are of a training: give its split with --chips")
    else:
        run = finished = read_finished_run(inputs, statements)
        parts, both, document = finished_parts(finished), [], finished.status.model_dump()
    with ExitStack() as drafts:
        page_draft, picture_draft = (drafts.enter_context(publish(path)) for path in (page, picture))
        page_draft.write_text(render(run, parts, both), encoding="utf-8")
        run.write_picture(picture_draft)
        if status:
            write_json(drafts.enter_context(publish(status)), document)
        for card, path in zip(both, (model_card, data_card), strict=False):
            if path:
                draft = drafts.enter_context(publish(path))
                draft.write_text(cards.markdown(card), encoding="utf-8", newline="\n")
