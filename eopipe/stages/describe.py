"""A map of a finished model, its areas and its inputs as one page, with scores where labels test it."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.ports import AnyModel, License, ProbabilityMaps

# 2: hectares and metres on the ground; test scores of the model, and classes that are never right or hardly mapped.
# 3: why no temperature was applied. 4: cells of tables wrap; few test pixels are enlarged.
REVISION = 4


def describe(
    model: AnyModel,
    classes: Annotated[tuple[Path, ...], Input("class maps: one mosaic, or one per scene", format="image/tiff")],
    probabilities: ProbabilityMaps,
    tiles: Annotated[tuple[Path, ...], Input("tile stores that the maps were predicted from", folder=True)],
    page: Annotated[Path, Output("report.html", "report: one self-contained HTML page", format="text/html")],
    picture: Annotated[Path, Output("map.png", "map sheet with axes, legend and scale bar", format="image/png")],
    *,
    scenes: Annotated[tuple[Path, ...], Input("frozen STAC Items of the run", format="application/geo+json")] = (),
    metrics: Annotated[
        Path | None, Input("scores of the maps, where labels test them", format="application/json")
    ] = None,
    title: Annotated[str, Option("title of page and map", section="report")] = "eopipe run",
    attribution: Annotated[str, Option("credit line of the data, on page and map", section="report")] = "",
    colors: Annotated[
        tuple[str, ...],
        Option(
            "colour of each class as #rrggbb; a colour-blind-safe palette if not given",
            section="report",
            pattern=r"^#[0-9A-Fa-f]{6}$",
        ),
    ] = (),
    author: Annotated[str, Option("author to cite for the map", section="crate")] = "",
    license: License = "",  # noqa: A002 - the word of every catalogue
) -> None:
    """Write the report of maps that a finished model made of scenes other than its training scenes, and a map sheet.

    The page shows the maps, the area of each class, and the inputs beside the training inputs: it warns of another
    season, sensor or processing baseline, and of bands of which more than a tenth of the pixels are beyond the 1 % and
    99 % quantiles of the training. Where labels test the maps it shows their scores, and the test scores of the model
    where its folder has them, as `eopipe init --from` of a run copies them (`test-scores.json`).
    Raises BadInputError for maps, model, tiles and scores that do not belong together, UsageError for colors that do
    not match the classes.
    """
    from eopipe.evaluation.maps import check_whole
    from eopipe.publish import publish
    from eopipe.reporting.map_page import MapInputs, read_map_run, render_map
    from eopipe.reporting.run_data import AuthorStatements

    check_whole(classes)
    inputs = MapInputs(model, classes, probabilities, tiles, scenes, metrics)
    run = read_map_run(inputs, title, attribution, colors, AuthorStatements(author=author, license=license))
    with publish(page) as page_draft, publish(picture) as picture_draft:
        page_draft.write_text(render_map(run), encoding="utf-8")
        run.write_map(picture_draft)
