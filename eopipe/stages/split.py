"""Chips -> train, val, test or folds, with a leakage audit."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output


def split(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    chips: Annotated[Path, Output("split.json", "samples of each split and the audit", format="application/json")],
    statistics: Annotated[
        Path, Output("statistics.json", "what the bands measure in the training chips", format="application/json")
    ],
    map: Annotated[Path, Output("split.png", "map of the splits, with their classes", format="image/png")],  # noqa: A002
    places: Annotated[
        Path,
        Output(
            "split.gpkg",
            "the chips as polygons, with split, scene and classes",
            format="application/geopackage+sqlite3",
        ),
    ],
    *,
    chip: Annotated[int, Option("edge of a chip in pixels", ge=8, multiple_of=4)] = 256,
    stride: Annotated[int | None, Option("step between chips in pixels; the chip's edge if not given", ge=1)] = None,
    method: Annotated[
        Literal[
            "blocks",
            "checkerboard",
            "west-east",
            "east-west",
            "north-south",
            "south-north",
            "temporal",
            "group",
            "random",
        ],
        Option(
            "random blocks; a checkerboard whose one colour trains; strips in the order train, val, test; scenes by "
            "date; whole groups; or single chips at random, which leaks and has to be allowed"
        ),
    ] = "blocks",
    fractions: Annotated[tuple[float, ...], Option("share of train, val, test", ge=0, le=1)] = (0.7, 0.15, 0.15),
    block: Annotated[int, Option("edge of a block or square in pixels", ge=8)] = 1024,
    buffer: Annotated[int, Option("least distance between splits in pixels", ge=0)] = 0,
    folds: Annotated[int, Option("number of folds; 0 splits once by the fractions", ge=0)] = 0,
    fold: Annotated[int, Option("the fold that tests", ge=0)] = 0,
    dates: Annotated[
        tuple[str, ...],
        Option("temporal: the first day of val and that of test; or only that of test", pattern=r"^\d{4}-\d\d-\d\d$"),
    ] = (),
    by: Annotated[
        Literal["scene", "tile", "region"], Option("group: what stays whole; a tile is one of MGRS or WRS-2")
    ] = "scene",
    val_groups: Annotated[tuple[str, ...], Option("groups that validate, by name", advanced=True)] = (),
    test_groups: Annotated[
        tuple[str, ...], Option("groups that test, by name; the rest trains. At random if none is given", advanced=True)
    ] = (),
    regions: Annotated[Path | None, Input("polygons of the regions", user=True)] = None,
    attribute: Annotated[str, Option("attribute that names the region of a polygon", advanced=True)] = "region",
    min_valid: Annotated[float, Option("least share of usable labelled pixels in a chip", ge=0, le=1)] = 0.5,
    min_scene_valid: Annotated[
        float,
        Option(
            "least share of the grid that a scene's valid pixels cover; others are left out", ge=0, le=1, advanced=True
        ),
    ] = 0.0,
    seed: Annotated[int, Option("seed of what is dealt out at random", ge=0)] = 0,
    similarity: Annotated[
        float,
        Option("correlation from which chips of two splits count as near-duplicates", ge=0.5, le=1, advanced=True),
    ] = 0.995,
    allow: Annotated[
        tuple[str, ...],
        Option("findings of the audit that may be, each as 'kind: reason'", pattern=r"^[a-z-]+: *\S", advanced=True),
    ] = (),
) -> None:
    """Cut the grid into chips, deal them out by place, date or group, and look for leaks.

    Writes samples as (scene, row, column). Raises BadInputError when a split is empty or lacks a class,
    IntegrityError that names a pair of chips when the audit finds a leak that is not allowed.
    """
    from eopipe.chips.make_split import SplitRequest, make_split
    from eopipe.chips.splits import SplitPlan
    from eopipe.publish import publish, write_json
    from eopipe.reporting.maps import draw_split, write_places

    plan = SplitPlan(
        method, fractions, chip, stride or chip, buffer, block, folds, fold, seed, by, dates, val_groups, test_groups
    )
    request = SplitRequest(tiles, labels, min_valid, min_scene_valid, regions, attribute, similarity, allow)
    found = make_split(request, plan)
    with publish(statistics) as measured, publish(map) as drawn, publish(places) as shapes, publish(chips) as draft:
        write_json(measured, found.statistics)
        draw_split(drawn, found)
        write_places(shapes, found)
        write_json(draft, found.told)
