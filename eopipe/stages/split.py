"""Chips -> train, val, test or folds, with a leakage audit."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Input, Option, Output


def split(
    tiles: Annotated[tuple[Path, ...], Input("tile stores of all scenes", folder=True)],
    labels: Annotated[tuple[Path, ...], Input("label store of all scenes, or one for each", folder=True)],
    chips: Annotated[Path, Output("split.json", "samples of each split and the audit", format="application/json")],
    *,
    chip: Annotated[int, Option("edge of a chip in pixels", ge=8, multiple_of=4)] = 256,
    stride: Annotated[int | None, Option("step between chips in pixels; the chip's edge if not given", ge=1)] = None,
    method: Annotated[
        Literal["blocks", "west-east", "east-west", "north-south", "south-north"],
        Option("random blocks, or strips in the order train, val, test"),
    ] = "blocks",
    fractions: Annotated[tuple[float, ...], Option("share of train, val, test", ge=0, le=1)] = (0.7, 0.15, 0.15),
    block: Annotated[int, Option("edge of a block in pixels", ge=8)] = 1024,
    buffer: Annotated[int, Option("least distance between splits in pixels", ge=0)] = 0,
    folds: Annotated[int, Option("number of folds; 0 splits once by the fractions", ge=0)] = 0,
    fold: Annotated[int, Option("the fold that tests", ge=0)] = 0,
    min_valid: Annotated[float, Option("least share of usable labelled pixels in a chip", ge=0, le=1)] = 0.5,
    seed: Annotated[int, Option("seed of the random blocks", ge=0)] = 0,
) -> None:
    """Cut the grid into chips and split them by place, never at random.

    Writes samples as (scene, row, column). Raises BadInputError when a split is empty or lacks a class,
    IntegrityError when chips of two splits come nearer than the buffer.
    """
    from eopipe.publish import publish, write_json
    from eopipe.sampling import split_samples
    from eopipe.splits import Plan

    plan = Plan(method, fractions, chip, stride or chip, buffer, block, folds, fold, seed)
    with publish(chips) as draft:
        write_json(draft, split_samples(tiles, labels, plan, min_valid))
