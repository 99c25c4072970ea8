"""Ports that several stages or commands have, each with one definition, and the types of ports for pydantic."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from eopipe.contract import Argument, Input, Knob, Option, Port

if TYPE_CHECKING:
    from pydantic import TypeAdapter

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


def annotated(port: Port) -> Any:
    """The type of a port with its constraints, for pydantic."""
    # Imported here, as `eopipe --help` does not need it.
    from pydantic import BeforeValidator, Field

    constraints = port.mark.constraints if isinstance(port.mark, Option) else {}
    constraints = constraints | ({"allow_inf_nan": False} if port.base is float else {})
    base: Any = Annotated[port.base, Field(**constraints)] if constraints else port.base
    if port.is_list:
        # An empty list cannot be given on a command line: omitting the option means the default.
        minimum = 0 if port.default == () else 1
        base = Annotated[tuple[base, ...], Field(min_length=port.count or minimum, max_length=port.count or None)]
        if isinstance(port.mark, Option) and port.mark.mapping:
            nested = dict[str, float | dict[str, float]]
            base = Annotated[base, BeforeValidator(_as_texts, json_schema_input_type=nested)]
        if isinstance(port.mark, Input):
            # A config may name a single file without the brackets of a list.
            base = Annotated[base, BeforeValidator(_listed, json_schema_input_type=tuple[Path, ...] | Path)]
    return base | None if port.optional else base


def _as_texts(value: Any) -> Any:
    """The entries of a mapping, of which one may have entries of its own, as texts: iou:forest=0.8, gain=0."""
    if not isinstance(value, dict):
        return value
    rows = [(key, part if isinstance(part, dict) else {"": part}) for key, part in value.items()]
    return [
        f"{key}:{name}={number}" if name else f"{key}={number}" for key, part in rows for name, number in part.items()
    ]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, Path)) else value


@cache
def adapter(port: Port) -> "TypeAdapter[Any]":
    """What checks and converts a value of a port."""
    from pydantic import TypeAdapter

    return TypeAdapter(annotated(port))
