"""What a stage is: one typed function from files to files, with marks on its parameters (ports).

Many settings are one parameter, a dataclass with marks on its fields. The signature is the only definition. The command
line (`arguments`), the config (`config`), its schema, the CWL tools and the reference page (`dev/`) are views of it.
The commands beside the stages are such functions too, whose ports are arguments.
"""

import importlib
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from eopipe.errors import RefusedError

# The stages in pipeline order, each with a section in the config; `import` packs chips that exist already.
STAGES = (
    "import",
    "search",
    "fetch",
    "preprocess",
    "composite",
    "label",
    "split",
    "train",
    "choose",
    "calibrate",
    "predict",
    "evaluate",
    "estimate",
    "export",
    "report",
    "products",
    "catalog",
    "crate",
)
# Set by the workflow for its jobs.
IN_WORKFLOW = "EOPIPE_WORKFLOW"
# The module and function of a stage whose name Python reserves.
FUNCTIONS = {"import": "import_chips"}


@dataclass(frozen=True)
class Input:
    """A file or folder that the stage reads.

    `user`: the config names it, no other stage writes it; `mixed`: it can be a file or a folder. `derived`: the
    function (`module:function`) that finds it by the other values of the stage; a folder is then identified by its
    files. `nested`: CWL may give it as a list of lists. `files`: the function that lists the files of it that the stage
    reads, by all its values; the run record then has these files. `section`: the stage in whose section the config
    names it.
    """

    doc: str
    folder: bool = False
    mixed: bool = False
    user: bool = False
    format: str = ""
    derived: str = ""
    nested: bool = False
    files: str = ""
    section: str = ""


@dataclass(frozen=True)
class Output:
    """A file or folder that the stage writes; `each` is the glob pattern of its parts, for a scatter.

    `stores` are folders in it with published folders, which the record lists beside it. A `positional` one is given on
    the command line without an option.
    """

    name: str
    doc: str
    folder: bool = False
    each: str = ""
    format: str = ""
    stores: tuple[str, ...] = ()
    positional: bool = False


@dataclass(frozen=True, init=False)
class Option:
    """A setting that changes the result; a change reruns the stage. Constraints are pydantic's.

    `advanced` ones are rarely needed: the help of the stage lists them last. With `section`, the setting of this name
    in the config section of that stage applies, so that stages cannot differ in it; `train.architecture` is the setting
    of another name. Where that stage has no such port itself, its section has the setting for this one. One `of_job` is
    set by the workflow for each job, never by the config. A `glob` is a pattern of file names, which a shell replaces
    by the files unless it is quoted. The config has a `mapping` as names with values below them, which are texts here,
    such as iou:forest=0.8.
    """

    doc: str
    advanced: bool
    section: str
    of_job: bool
    glob: bool
    mapping: bool
    constraints: dict[str, Any] = field(hash=False)

    def __init__(
        self,
        doc: str,
        *,
        advanced: bool = False,
        section: str = "",
        of_job: bool = False,
        glob: bool = False,
        mapping: bool = False,
        **constraints: Any,
    ) -> None:
        values = {"doc": doc, "advanced": advanced, "section": section, "of_job": of_job, "glob": glob}
        values |= {"mapping": mapping}
        for name, setting in (values | {"constraints": constraints}).items():
            object.__setattr__(self, name, setting)


class Knob(Option):
    """A setting that changes only speed, place or permission (workers, device, folders); a change reruns nothing."""


# A dataclass, so that two that differ are not equal: `typing` makes one of two equal ones.
@dataclass(frozen=True, init=False)
class Argument(Option):
    """An argument of a command beside the stages: an option, or where it is `positional` a value by its place.

    `value` is the name of its value in the help, for text by default the argument's own, and `bare` the value of an
    option that is given without one. With `stage` it has all words of the command line that no other argument takes:
    arguments of that stage.
    """

    positional: bool
    value: str
    bare: str | None
    stage: str

    def __init__(
        self,
        doc: str,
        *,
        positional: bool = False,
        value: str = "",
        bare: str | None = None,
        stage: str = "",
        **constraints: Any,
    ) -> None:
        super().__init__(doc, **constraints)
        for name, setting in {"positional": positional, "value": value, "bare": bare, "stage": stage}.items():
            object.__setattr__(self, name, setting)


Mark = Input | Output | Option


@dataclass(frozen=True)
class Port:
    """One parameter of a stage or command, or a field of the dataclass that a parameter (`group`) is.

    `base` is its type without None and without the tuple of a list, which has `count` values where that is fixed.
    """

    name: str
    mark: Mark
    type: Any
    base: Any
    is_list: bool
    optional: bool
    default: Any
    group: str = ""
    count: int = 0

    @property
    def flag(self) -> str:
        """The port's option on the command line; of a positional one its name in the help."""
        if self.positional:
            return (isinstance(self.mark, Argument) and self.mark.value) or self.name.upper()
        # A name that Python has already, such as `from`, ends with an underscore.
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def positional(self) -> bool:
        """Whether the command line has its value without an option."""
        return isinstance(self.mark, (Output, Argument)) and self.mark.positional

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def section(self) -> str:
        """The stage whose section of the config sets it; empty for its own stage."""
        return "" if isinstance(self.mark, Output) else self.mark.section.partition(".")[0]

    @property
    def setting(self) -> str:
        """The name of the setting in that section."""
        return (isinstance(self.mark, Option) and self.mark.section.partition(".")[2]) or self.name

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a Literal; empty for other types."""
        return get_args(self.base) if get_origin(self.base) is Literal else ()


@dataclass(frozen=True)
class Command:
    """A command of the command line, read from the signature of its function."""

    name: str
    function: Callable[..., Any]
    ports: tuple[Port, ...]
    # The dataclasses of its ports, by parameter.
    groups: Mapping[str, type] = field(default_factory=dict)

    def run(self, **values: Any) -> Any:
        """Call the function with the values of its ports."""
        for name, group in self.groups.items():
            ports = [port.name for port in self.ports if port.group == name]
            values[name] = group(**{port: values.pop(port) for port in ports if port in values})
        return self.function(**values)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def of(self, *kinds: type[Mark]) -> tuple[Port, ...]:
        """The ports that carry exactly one of these marks."""
        return tuple(port for port in self.ports if type(port.mark) in kinds)

    @property
    def settings(self) -> tuple[Port, ...]:
        """What a config file sets for it: nothing, unless it is a stage."""
        return ()

    def with_derived(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a call with those inputs that follow from the others. Raises UsageError for missing files."""
        ports = {port.name: port for port in (*self.ports, *self.settings) if port.name in values}
        functions = {name: port.mark.derived for name, port in ports.items() if isinstance(port.mark, Input)}
        return {**values, **{name: _function(derived)(values) for name, derived in functions.items() if derived}}


@dataclass(frozen=True)
class Stage(Command):
    """A command that reads and writes files, with a section of the config, a rule and a run record."""

    @property
    def options(self) -> tuple[Port, ...]:
        """The options that are the same for all its jobs of a run, or that trials vary: not those `of_job`."""
        return tuple(port for port in self.ports if type(port.mark) is Option and not port.mark.of_job)

    @property
    def revision(self) -> int:
        """The number of times that the results for the same inputs and options changed; see docs/adr/README.md."""
        return int(getattr(importlib.import_module(self.function.__module__), "REVISION", 1))

    def paths(self, port: Port, values: Mapping[str, Any]) -> tuple[Path, ...]:
        """What the stage reads or writes through a port. Raises an EopipeError where its files cannot be listed."""
        if isinstance(port.mark, Input) and port.mark.files:
            return tuple(_function(port.mark.files)(values))
        value = values[port.name]
        return value if isinstance(value, tuple) else () if value is None else (value,)

    def outputs(self, values: Mapping[str, Any]) -> list[Path]:
        """The outputs that are given; the run record lies beside the first of them."""
        return [path for port in self.of(Output) for path in self.paths(port, values)]

    @property
    def settings(self) -> tuple[Port, ...]:
        """What a config file sets in the section of the stage: options, knobs and the user's own input files.

        Behind its own ports are those of other stages that are set here.
        """
        names = {port.name for port in self.ports}
        others = (port for name in STAGES for port in stage(name).ports if port.section == self.name)
        placed = {port.name: port for port in others if port.setting not in names}
        return (*(port for port in self.ports if _in_config(port)), *placed.values())


def _function(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function that a mark names as `module:function`."""
    module, _, function = name.partition(":")
    return cast(Callable[[Mapping[str, Any]], Any], getattr(importlib.import_module(module), function))


def _in_config(port: Port) -> bool:
    if isinstance(port.mark, Input):
        return port.mark.user and not port.section
    # The workflow sets the folders of unfinished work.
    return isinstance(port.mark, Option) and not is_path(port) and not port.section and not port.mark.of_job


def summary(name: str) -> str:
    """The first line of a stage's docstring; imports none of its dependencies."""
    return (inspect.getdoc(_stage_function(name)) or "").partition("\n")[0]


def function_name(name: str) -> str:
    """The name of a stage's function, and of its module."""
    return FUNCTIONS.get(name, name)


def _stage_function(name: str) -> Callable[..., None]:
    module = importlib.import_module(f"eopipe.stages.{function_name(name)}")
    return cast(Callable[..., None], getattr(module, function_name(name)))


@cache
def stage(name: str) -> Stage:
    """Read the definition of a stage from its function."""
    function = _stage_function(name)
    return Stage(name, function, *_signature(function))


@cache
def command(name: str, function: Callable[..., Any]) -> Command:
    """Read the definition of a command beside the stages from its function."""
    return Command(name, function, *_signature(function))


def _signature(function: Callable[..., Any]) -> tuple[tuple[Port, ...], Mapping[str, type]]:
    """The ports of a function, and the dataclasses that they are fields of."""
    hints = get_type_hints(function, include_extras=True)
    ports: list[Port] = []
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    for parameter in inspect.signature(function).parameters.values():
        if group := groups.get(parameter.name):
            kinds = get_type_hints(group, include_extras=True)
            defaults = {item.name: item.default for item in fields(group)}
            ports += [
                _port(key, kinds[key], inspect.Parameter.empty if value is MISSING else value, parameter.name)
                for key, value in defaults.items()
            ]
        else:
            ports.append(_port(parameter.name, hints[parameter.name], parameter.default))
    return tuple(ports), groups


def _port(name: str, hint: Any, default: Any, group: str = "") -> Port:
    kind, *marks = get_args(hint)
    if len(marks) != 1 or not isinstance(marks[0], Mark):
        raise TypeError(f"port {name} needs exactly one of Input, Output, Option, Knob, Argument")
    base, optional = _without_none(kind)
    is_list = get_origin(base) is tuple
    inner = get_args(base)[0] if is_list else base
    if inner is bool and default is not False:
        # A CWL boolean with a prefix can only switch something on.
        raise TypeError(f"switch {name} must be off by default")
    if optional and default is not None:
        # A command line can omit an option; it cannot pass None.
        raise TypeError(f"port {name} may be None, so None must be its default")
    count = len(get_args(base)) if is_list and get_args(base)[-1] is not Ellipsis else 0
    return Port(name, marks[0], kind, inner, is_list, optional, default, group, count)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) in (Union, types.UnionType):
        types_left = [arg for arg in get_args(kind) if arg is not type(None)]
        return types_left[0], len(types_left) < len(get_args(kind))
    return kind, False


def to_args(port: Port, value: Any) -> list[str]:
    """The command-line arguments that set a port to this value: the inverse of the parser.

    >>> to_args(stage("preprocess").of(Option)[0], ("red", "nir"))
    ['--bands', 'red', 'nir']
    """
    if value is None or value is False or value in ((), []):
        return []
    if value is True:
        return [port.flag]
    words = [str(entry) for entry in (value if isinstance(value, (tuple, list)) else (value,))]
    if options := [word for word in words if is_option(word)]:
        raise RefusedError(f"{port.name} has {options[0]!r}, which a command line would take for an option")
    return words if port.positional else [port.flag, *words]


def is_option(word: str) -> bool:
    """Whether a command line would take a word for an option; negative numbers are none."""
    return re.match(r"-(?![\d.])", word) is not None


def is_path(port: Port) -> bool:
    """Whether the port is a file or folder."""
    return bool(port.base is Path)
