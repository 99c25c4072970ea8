"""Chips -> train, val and test splits or folds, with a leakage audit."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output

# 2: scenes without a valid or labelled pixel are left out with the reason; the last rows and columns are in chips;
# blocks that the grid cuts are assigned apart; the audit has more kinds. 3: chips begin at the edge of each strip or
# block; a val split without chips is a warning. 4: gaps between polygons where these are split, and their map.
# 5: in runs of several cells a chip that is removed at the border of a cell removes no other one.
# 6: in runs of several cells chips and blocks are counted from the edges of each; a chip of another grid counts with
# the box around it on the ground. 7: strips of places west of Greenwich begin with the first place.
# 8: any labelled pixel of a shape makes a chip usable; which shapes are used. 9: the group of each chip.
# 10: on a grid the region of a chip is the one of its middle pixel.
REVISION = 10


def split(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one per scene", folder=True)],
    chips: Annotated[
        Path, Output("split.json", "chips of each split, and the leakage audit", format="application/json")
    ],
    statistics: Annotated[
        Path,
        Output(
            "statistics.json", "band statistics (mean, std, histogram) of the training chips", format="application/json"
        ),
    ],
    map: Annotated[Path, Output("split.png", "map of the splits and their classes", format="image/png")],  # noqa: A002
    outlines: Annotated[
        Path,
        Output(
            "split.gpkg", "chips as polygons, with split, scene and classes", format="application/geopackage+sqlite3"
        ),
    ],
    *,
    chip: Annotated[int, Option("edge of a chip in pixels", ge=8, multiple_of=4)] = 256,
    stride: Annotated[int | None, Option("step between chips in pixels (default: the edge of a chip)", ge=1)] = None,
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
            "random blocks; checkerboard, one colour for train; strips in the order train, val, test; temporal: scenes "
            "by date; group: whole groups; random: single chips, which leaks between neighbours and must be allowed"
        ),
    ] = "blocks",
    fractions: Annotated[tuple[float, ...], Option("fractions of train, val and test", ge=0, le=1)] = (0.7, 0.15, 0.15),
    block: Annotated[int, Option("edge of a block, or of a square of the checkerboard, in pixels", ge=8)] = 1024,
    buffer: Annotated[int, Option("minimum distance between splits in pixels", ge=0)] = 0,
    folds: Annotated[int, Option("number of cross-validation folds; 0: one split by the fractions", ge=0)] = 0,
    fold: Annotated[int, Option("number of the test fold, from 0", ge=0)] = 0,
    dates: Annotated[
        tuple[str, ...],
        Option("temporal split: first day of val and of test, or of test only", pattern=r"^\d{4}-\d\d-\d\d$"),
    ] = (),
    by: Annotated[
        Literal["scene", "tile", "region", "polygon", "column"],
        Option(
            "group split: unit that is kept whole; a scene of a chip set is an image file, a tile is of MGRS or WRS-2, "
            "a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of a "
            "chip set"
        ),
    ] = "scene",
    val_groups: Annotated[tuple[str, ...], Option("names of the validation groups", advanced=True)] = (),
    test_groups: Annotated[
        tuple[str, ...], Option("names of the test groups; all others train (default: groups at random)", advanced=True)
    ] = (),
    regions: Annotated[Path | None, Input("polygons of the regions of a group split", user=True)] = None,
    attribute: Annotated[
        str, Option("attribute with the region of a polygon, or column of a chip set", advanced=True)
    ] = "region",
    block_km: Annotated[
        float, Option("edge in km of the equal-area blocks of a chip set (eopipe import)", gt=0, advanced=True)
    ] = 50.0,
    min_valid: Annotated[
        float | None,
        Option(
            "minimum fraction of valid, labelled pixels in a chip (default: 0.5; of polygons and points 0, any pixel)",
            ge=0,
            le=1,
        ),
    ] = None,
    seed: Annotated[int, Option("seed of random assignments", ge=0)] = 0,
    allow: Annotated[
        tuple[str, ...],
        Option(
            "accepted findings of the leakage audit, each as 'kind: reason'", pattern=r"^[a-z-]+: *\S", advanced=True
        ),
    ] = (),
) -> None:
    """Cut the grid into chips, assign them to splits by place, date or group, and audit the splits for leakage.

    Writes samples as (scene, row, column); samples of a chip set are slots, assigned by the true places of their chips.
    A scene without a valid or a labelled pixel is left out, with a warning.
    Raises BadInputError when a split is empty or lacks a class,
    IntegrityError with a pair of chips when the audit finds a leak that split.allow does not accept.
    """
    from eopipe.chips.make_split import make_split
    from eopipe.chips.splits import SplitPlan, SplitRequest
    from eopipe.publish import publish
    from eopipe.reporting.split_maps import draw_split, write_chip_polygons
    from eopipe.text_files import write_json

    plan = SplitPlan(
        method, fractions, chip, stride or chip, buffer, block, folds, fold, seed, by, dates, val_groups, test_groups
    )
    request = SplitRequest(tiles, labels, min_valid, regions, attribute, allow, block_km)
    result = make_split(request, plan)
    with (
        publish(statistics) as statistics_draft,
        publish(map) as map_draft,
        publish(outlines) as outlines_draft,
        publish(chips) as chips_draft,
    ):
        write_json(statistics_draft, result.statistics.json_document())
        draw_split(map_draft, result)
        write_chip_polygons(outlines_draft, result)
        write_json(chips_draft, result.document.json_document())
