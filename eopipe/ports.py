"""Ports that several stages or commands have, each with one definition."""

from pathlib import Path
from typing import Annotated, Literal

from eopipe.contract import Argument, Input, Knob, Option

ConfigFile = Annotated[Path | None, Argument("config of the run [config.yaml, or config/config.yaml]", positional=True)]
AnyModel = Annotated[
    Path, Input("trained model: its folder, its STAC Item model.json, or a STAC catalog with it", mixed=True)
]
ProbabilityMaps = Annotated[
    tuple[Path, ...], Input("probability maps, in the order of the class maps", format="image/tiff")
]
FrozenItems = Annotated[
    tuple[Path, ...], Input("frozen STAC Items of the run; none of a chip set", format="application/geo+json")
]
Halo = Annotated[
    int | None, Option("pixels read around each window (default: receptive-field radius)", ge=0, advanced=True)
]
Window = Annotated[int, Option("edge of a window in pixels; memory grows with its square", ge=64, advanced=True)]
Device = Annotated[Literal["auto", "cpu", "cuda"], Knob("device to compute on")]
License = Annotated[
    str,
    Option(
        "licence of model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL",
        section="crate",
        pattern=r"^(https?://\S+|[\w.+-]*)$",
    ),
]
AllowCode = Annotated[
    str | None,
    Knob(
        "permission to run the code of a custom model: the class that its model.json names, as module:Class or "
        "file.py:Class",
        section="train.architecture",
        advanced=True,
    ),
]
Threads = Annotated[
    int, Knob("windows that are predicted at a time, each by one thread; 0: one per core, at most 8", ge=0)
]
