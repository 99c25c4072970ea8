"""The config of a new project as text: each setting with what it means, and examples of what a run can have besides."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eopipe.config import model, section
from eopipe.contract import STAGES

HEAD = """\
# Config of an eopipe run. `eopipe check` reports mistakes; `eopipe train --help` and
# https://github.com/eopipe/eopipe/blob/main/docs/stages.md list all settings.
"""
# What a newcomer should know of a setting, or of one of its values, before what its help says.
NOTES = {
    "results": "all outputs",
    "state": "checkpoints and unfinished downloads; kept after failures",
    "fetch.windows": "only the blocks of the files that the grid needs",
    "preprocess.bands": "channel order of the model",
    "preprocess.mask": "asset that says which pixels are usable",
    "composite.method: median": "of the clear observations of each season",
    "composite.stack: season": "as bands red_MAM, red_JJA, … of one image",
    "label.attribute": "column of a vector file with the class or the value",
    "split.method: blocks": "blocks go to train, val or test as a whole, never single chips",
    "split.method: group": "each group is in one split as a whole",
    "split.by: polygon": "of the labels; or `method: blocks`, for scores that hold on new land",
    "split.min_valid: 0": "any labelled pixel makes a chip usable",
    "train.processes": "torchrun workers",
    "crate.author": "name of the person to cite",
}
# Settings that many runs have later, as lines without the `# ` of a comment: in the section of search, and at the end.
EXAMPLES = {
    "search": (
        "best: 3                        # only the three clearest days of each month, with all their scenes",
        "per: month",
        "group: solar-day",
    ),
    "trials": ("trials: {space: {learning_rate: [0.001, 0.003]}}   # the best of several trainings, by validation",),
    "members": ("members: 3                       # the mean of three trainings, and where they disagree",),
    "with_products": (
        "with_products: true              # of the map: polygons, a QGIS style, entropy, areas of zones",
    ),
}
# Column of the comments, and the most columns of a line.
COMMENT, WIDTH = 35, 120


def project_text(settings: Mapping[str, Any], notes: Mapping[str, str], examples: Sequence[str] = ()) -> str:
    """The text of a config: general settings, and sections as mappings, of which empty ones are left out.

    `notes` are comments of this project by setting, as in `split.block`, and `examples` names of EXAMPLES.
    """
    general = {name: value for name, value in settings.items() if name not in STAGES}
    lines = [HEAD, *(_line("", name, value, notes) for name, value in general.items())]
    for name, values in settings.items():
        if name in STAGES and values:
            lines += ["", f"{name}:", *(_line(name, key, value, notes) for key, value in values.items())]
            lines += [f"  # {line}" for line in EXAMPLES[name] if name in examples] if name in EXAMPLES else []
    of_runs = [f"# {line}" for name in examples if name not in STAGES for line in EXAMPLES[name]]
    return "\n".join([*lines, *(["", *of_runs] if of_runs else []), ""])


def _line(owner: str, name: str, value: Any, notes: Mapping[str, str]) -> str:
    key = f"{owner}.{name}" if owner else name
    text = f"{'  ' if owner else ''}{name}: {_yaml(value)}"
    known = {**NOTES, **notes}
    fields = (section(owner) if owner else model()).model_fields
    help_text = re.split(r"[:;(]|, e\.g\.", fields[name].description or "")[0].strip()
    line = f"{text:<{COMMENT - 1}} # {known.get(f'{key}: {_yaml(value)}') or known.get(key) or help_text}"
    return line if len(line) <= WIDTH else text


def _yaml(value: Any) -> str:
    import yaml

    plain = [*value] if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()
