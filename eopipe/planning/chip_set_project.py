"""`eopipe init --chips`: a project for a chip set, with the split that its places and groups allow."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.chip_places import read_index
from eopipe.chips.chip_table import equal_area_blocks
from eopipe.config import validate
from eopipe.errors import UsageError
from eopipe.planning.check_config import split_of_chip_set
from eopipe.planning.project_settings import FRACTIONS, from_project, model_of_project
from eopipe.tasks import TASKS

# Edges of blocks in km, the first with enough of them is chosen: a seventh of 40 are six, which an interval needs.
BLOCKS_KM, ENOUGH_BLOCKS, LEAST_BLOCKS = (50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1), 40, 3
TEMPLATE = """\
# Config of an eopipe run on a chip set. `eopipe check` reports mistakes; `eopipe train --help` and
# https://github.com/eopipe/eopipe/blob/main/docs/stages.md list all settings.

results: results                   # all outputs
state: state                       # checkpoints; kept after failures
chip_set: {chip_set}   # {count} chips, by `eopipe import`

split:
{split}
  fractions: {fractions}

train:
  task: {task}
  architecture: {model}
  processes: 1                     # torchrun workers

report:
  title: {title}
"""


def chip_set_project(chip_set: Path, folder: Path, task: str, model: str) -> str:
    """The config of a project in `folder` for a chip set, whose paths start there.

    Groups of the import are split where there are at least three, else blocks of the Earth. Chips with one class for
    all of their pixels, from folders or labels of windows, are classified where the task is segmentation. Raises
    BadInputError for another folder than a chip set's, UsageError for chips that are too near to each other for splits.
    """
    index = read_index(chip_set)
    chips: list[dict[str, Any]] = index["chips"]
    if not TASKS[task].is_of_chips and not any("mask" in chip for chip in chips):
        task = "classification"
    text = TEMPLATE.format(
        chip_set=json.dumps(from_project(chip_set, folder)),
        count=len(chips),
        split=_split_lines(chips),
        fractions=json.dumps(FRACTIONS),
        task=task,
        model=json.dumps(model_of_project(model, folder)),
        title=json.dumps(f"Map of {folder.resolve().name}"),
    )
    import yaml

    # The file of a model is looked for from here.
    config, mistakes, _ = validate(yaml.safe_load(text) | {"train": {"task": task, "architecture": model}})
    if mistakes:
        raise UsageError("; ".join(mistakes))
    split_of_chip_set(config | {"chip_set": str(chip_set)})
    return text


def _split_lines(chips: list[dict[str, Any]]) -> str:
    groups = {chip["group"] for chip in chips if chip.get("group") is not None}
    if len(groups) >= LEAST_BLOCKS:
        lines = ["method: group                    # whole groups go to train, val or test", "by: column"]
        return "\n".join(f"  {line}" for line in [*lines, f"attribute: group                 # {len(groups)} groups"])
    degrees = np.array([(chip["longitude"], chip["latitude"]) for chip in chips])
    counts = {edge: len(np.unique(equal_area_blocks(degrees, edge), axis=0)) for edge in BLOCKS_KM}
    edge = next((edge for edge, count in counts.items() if count >= ENOUGH_BLOCKS), BLOCKS_KM[-1])
    if counts[edge] < LEAST_BLOCKS:
        raise UsageError(
            f"the chips are in {counts[edge]} blocks of {edge:g} km, and at least {LEAST_BLOCKS} are needed; import "
            "them with --group, and split by these groups"
        )
    blocks = f"block_km: {edge:g}"
    return "\n".join(
        [
            "  method: blocks                   # equal-area blocks of the Earth go to train, val or test as a whole",
            f"  {blocks:<32} # {counts[edge]} blocks with chips",
        ]
    )
