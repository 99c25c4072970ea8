"""Scores, maps and provenance as one page that opens anywhere, and one map."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output

# Maps have axes in degrees, and figures are drawn by matplotlib.
REVISION = 3


def report(
    metrics: Annotated[Path, Input("scores, as evaluate makes them", format="application/json")],
    model: Annotated[Path, Input("trained model", folder=True)],
    chips: Annotated[Path, Input("split file", format="application/json")],
    classes: Annotated[tuple[Path, ...], Input("maps of classes: one mosaic, or one a scene", format="image/tiff")],
    probabilities: Annotated[
        tuple[Path, ...], Input("maps of probabilities, in the order of the classes", format="image/tiff")
    ],
    tiles: Annotated[tuple[Path, ...], Input("tile stores, for the quicklook", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    scenes: Annotated[tuple[Path, ...], Input("frozen STAC Items of the run", format="application/geo+json")],
    page: Annotated[Path, Output("report.html", "self-contained page", format="text/html")],
    picture: Annotated[Path, Output("map.png", "the map with its legend", format="image/png")],
    model_card: Annotated[
        Path, Output("model-card.md", "what the model is, as Hugging Face reads it", format="text/markdown")
    ],
    data_card: Annotated[
        Path, Output("data-card.md", "what the data are, as Hugging Face reads it", format="text/markdown")
    ],
    *,
    title: Annotated[str, Option("headline")] = "eopipe run",
    attribution: Annotated[str, Option("credit line of the data")] = "",
    use: Annotated[str, Option("what the model is meant for, for the model card")] = "",
    limits: Annotated[tuple[str, ...], Option("what it must not be used for, or is known to be bad at")] = (),
    author: Annotated[str, Option("who is to be cited for the model")] = "",
    license: Annotated[  # noqa: A002 - the word of every catalogue
        str,
        Option("licence of model and stores: SPDX id, as CC-BY-4.0, or address", pattern=r"^(https?://\S+|[\w.+-]*)$"),
    ] = "",
    colors: Annotated[
        tuple[str, ...],
        Option("#rrggbb of each class; a colour-blind-safe palette if none", pattern=r"^#[0-9A-Fa-f]{6}$"),
    ] = (),
) -> None:
    """Tell a run in one page: verdict, scores, maps, training, data and provenance; and the cards of model and data.

    The page needs no network and no script; large maps are thinned out, at most six are shown. Raises
    BadInputError for maps, splits and scores that do not belong together, UsageError for colors that do not
    match the classes.
    """
    from eopipe.publish import publish
    from eopipe.reporting.cards import data_card as card_of_data
    from eopipe.reporting.cards import markdown
    from eopipe.reporting.cards import model_card as card_of_model
    from eopipe.reporting.maps import write_map
    from eopipe.reporting.page import render
    from eopipe.reporting.run_data import Said, Sources, map_content, read_story

    sources = Sources(metrics, model, chips, classes, probabilities, tiles, labels, scenes)
    story = read_story(sources, title, attribution, colors, Said(use, limits, author, license))
    cards = card_of_model(story), card_of_data(story)
    with (
        publish(page) as page_draft,
        publish(picture) as picture_draft,
        publish(model_card) as model_draft,
        publish(data_card) as data_draft,
    ):
        page_draft.write_text(render(story, cards), encoding="utf-8")
        write_map(picture_draft, map_content(story))
        for card, draft in zip(cards, (model_draft, data_draft), strict=True):
            draft.write_text(markdown(card), encoding="utf-8", newline="\n")
