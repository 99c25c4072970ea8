"""Scores, maps and provenance as one page that opens anywhere, and one map."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output


def report(
    metrics: Annotated[Path, Input("scores, as evaluate makes them", format="application/json")],
    model: Annotated[Path, Input("trained model", folder=True)],
    chips: Annotated[Path, Input("split file", format="application/json")],
    classes: Annotated[tuple[Path, ...], Input("maps of classes: one mosaic, or one a scene")],
    probabilities: Annotated[tuple[Path, ...], Input("maps of probabilities, in the order of the classes")],
    tiles: Annotated[tuple[Path, ...], Input("tile stores, for the quicklook", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    scenes: Annotated[tuple[Path, ...], Input("frozen STAC Items of the run", format="application/geo+json")],
    page: Annotated[Path, Output("report.html", "self-contained page", format="text/html")],
    picture: Annotated[Path, Output("map.png", "the map with its legend", format="image/png")],
    *,
    title: Annotated[str, Option("headline")] = "eopipe run",
    attribution: Annotated[str, Option("credit line of the data")] = "",
    colors: Annotated[
        tuple[str, ...],
        Option("#rrggbb of each class; a colour-blind-safe palette if none", pattern=r"^#[0-9A-Fa-f]{6}$"),
    ] = (),
) -> None:
    """Tell a run in one page: verdict, scores, maps, training, data and provenance.

    The page needs no network and no script; large maps are thinned out, at most six are shown. Raises
    BadInputError for maps, splits and scores that do not belong together, UsageError for colors that do not
    match the classes.
    """
    from eopipe.publish import publish
    from eopipe.reporting.page import render
    from eopipe.reporting.sheet import draw
    from eopipe.reporting.story import Sources, read_story, sheet_of

    sources = Sources(metrics, model, chips, classes, probabilities, tiles, labels, scenes)
    story = read_story(sources, title, attribution, colors)
    with publish(page) as page_draft, publish(picture) as picture_draft:
        page_draft.write_text(render(story), encoding="utf-8")
        draw(sheet_of(story)).save(picture_draft, "PNG", optimize=True)
