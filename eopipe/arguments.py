"""The command line of a stage or another command: an argparse view of its ports, with help in groups."""

import argparse
import inspect
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from eopipe.contract import (
    Argument,
    Command,
    Input,
    Knob,
    Option,
    Output,
    Port,
    Stage,
    is_option,
    is_path,
    to_args,
)
from eopipe.errors import BadInputError, UsageError, did_you_mean, some_of
from eopipe.ports import adapter
from eopipe.text_files import read_text, refuse_endless

if TYPE_CHECKING:
    from pydantic import ValidationError

# Titles of the groups of `eopipe COMMAND --help`, in order; the last ones hold the ports that are marked as advanced.
GROUPS = {
    (Argument, False): "arguments",
    (Input, False): "inputs",
    (Output, False): "outputs",
    (Option, False): "options (change the result)",
    (Knob, False): "knobs (change only speed or place)",
    (Option, True): "advanced options (change the result)",
    (Knob, True): "advanced knobs (change only speed or place)",
}
# Options of a trial of a training, all in one word.
SETTINGS = "--settings"


class Parser(argparse.ArgumentParser):
    """An argument parser that reports through UsageError."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse; an option that does not exist is named before arguments that are missing."""
        self._refuse_unknown(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def _refuse_unknown(self, args: Sequence[str]) -> None:
        if self._subparsers is not None:
            return
        known = [option for action in self._actions for option in action.option_strings]
        # argparse takes a word with a blank for a value.
        words = [word.partition("=")[0] for word in args if word.startswith("--") and " " not in word]
        words = words[: words.index("--")] if "--" in words else words
        unknown = [word for word in words if word not in known and not self._is_abbreviation(word, known)]
        if unknown:
            hints = [f"{word}{_hint(word, known)}" for word in dict.fromkeys(unknown)]
            self.error(f"there is no option {', '.join(hints)}")

    def _is_abbreviation(self, word: str, known: Sequence[str]) -> bool:
        return self.allow_abbrev and any(option.startswith(word) for option in known)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def _hint(word: str, known: Sequence[str]) -> str:
    hint = did_you_mean(word, known, "")
    return f" ({hint})" if hint else ""


def parser_of(definition: Command, others: Mapping[str, str]) -> Parser:
    """The parser of a command, with its ports in groups; `others` are the commands below it with their summaries."""
    stages = [name for port in definition.ports if (name := _stage_of_rest(port))]
    notes = [f"and all arguments of eopipe {name} --help" for name in stages]
    notes += [f"eopipe {name}: {text}" for name, text in others.items()]
    paragraphs = inspect.cleandoc(definition.function.__doc__ or "").split("\n\n")
    parser = Parser(
        prog=f"eopipe {definition.name}",
        usage=_usage(definition),
        description="\n\n".join(textwrap.fill(paragraph, _width()) for paragraph in paragraphs),
        epilog="\n".join(notes) or None,
        allow_abbrev=False,
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for (kind, is_advanced), title in GROUPS.items():
        of_kind = _in_order(definition.of(kind))
        ports = [port for port in of_kind if getattr(port.mark, "advanced", False) == is_advanced]
        if not ports:
            continue
        group = parser.add_argument_group(title)
        for port in ports:
            group.add_argument(port.name if port.positional else port.flag, **_argument(port))
        if (definition.name, kind, is_advanced) == ("train", Option, True):
            text = "options by their names in JSON, in the place of the same ones before, as trials have them"
            group.add_argument(SETTINGS, metavar="JSON", help=text)
    parser.add_argument_group("help").add_argument("-h", "--help", action="help", help="show this help and exit")
    return parser


def _in_order(ports: Sequence[Port]) -> list[Port]:
    """Ports for the help, first by their place and the required ones, without the arguments of another stage."""
    ports = [port for port in ports if not _stage_of_rest(port)]
    return sorted(ports, key=lambda port: (not port.positional, not port.required))


def _stage_of_rest(port: Port) -> str:
    """The stage whose arguments a port takes, as words; empty for other ports."""
    return port.mark.stage if isinstance(port.mark, Argument) else ""


def _usage(definition: Command) -> str:
    """The required ports, and those by their place: the groups below list the others."""
    words = []
    for port in _in_order(definition.ports):
        word = port.flag if port.positional else f"{port.flag} {' '.join(_metavars(port))}"
        word += " ..." if port.is_list and not port.count else ""
        words += [word] if port.required else [f"[{word}]"] if port.positional else []
    words.append("[options]")
    words += [f"[{name} options]" for port in definition.ports if (name := _stage_of_rest(port))]
    # argparse writes "usage: " before it.
    lines = textwrap.wrap(" ".join(words), _width() - len(f"usage: eopipe {definition.name} "))
    return f"eopipe {definition.name} " + f"\n{' ' * len(f'usage: eopipe {definition.name} ')}".join(lines)


def _width() -> int:
    # As argparse wraps the help of its arguments.
    return max(40, shutil.get_terminal_size().columns - 2)


def _metavars(port: Port) -> tuple[str, ...]:
    """The names of its value in the help, or of its values where their number is fixed."""
    if isinstance(port.mark, Argument) and port.mark.value:
        return tuple(port.mark.value.split()) if port.count else (port.mark.value,)
    if port.positional:
        return (port.flag,)
    if isinstance(port.mark, Argument) and port.base is str:
        return (port.name.rstrip("_").upper(),)
    return ("NAME" if port.choices else "PATH" if is_path(port) else port.base.__name__.upper(),)


def _argument(port: Port) -> dict[str, Any]:
    text = port.mark.doc.replace("%", "%%")
    if port.base is bool:
        return {"dest": port.name, "action": "store_true", "help": text}
    if port.choices:
        text += f" {{{', '.join(port.choices)}}}"
    if port.required:
        text += " (required)"
    elif port.default not in (None, ()):
        text += f" [{' '.join(map(str, port.default)) if port.is_list else port.default}]"
    # The name of a positional one is its only text.
    names = {} if port.positional else {"dest": port.name, "required": port.required}
    bare = port.mark.bare if isinstance(port.mark, Argument) else None
    is_omitted = bare is not None or (port.positional and not port.required)
    metavars = _metavars(port)
    return names | {
        "help": text,
        # Lists of inputs and arguments that are given twice add up; an option that is given again replaces the first.
        "action": "extend" if port.is_list and isinstance(port.mark, (Input, Argument)) else "store",
        "default": argparse.SUPPRESS if port.required or port.is_list else port.default,
        "nargs": port.count or ("+" if port.is_list else "?" if is_omitted else None),
        "metavar": metavars if port.count else metavars[0],
        **({"const": bare} if bare is not None else {}),
    }


def parse(definition: Command, argv: Sequence[str], others: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Turn a command line into typed values, with the inputs that follow from them.

    `others` are the commands below this one, for its help. Raises UsageError that names every wrong value.
    """
    from pydantic import ValidationError

    _refuse_expanded(definition, argv)
    parser = parser_of(definition, others or {})
    if rest := next((port for port in definition.ports if _stage_of_rest(port)), None):
        known, words = parser.parse_known_args(argv)
        # A word of its own between the arguments of both, where it is given.
        arguments = vars(known) | {rest.name: words[1:] if words[:1] == ["--"] else words}
    else:
        arguments = vars(parser.parse_args(argv))
    values, errors = {}, []
    for port in definition.ports:
        try:
            values[port.name] = adapter(port).validate_python(arguments.get(port.name, port.default))
        except ValidationError as error:
            errors.append(f"{port.flag} {_reason(error)}")
    if errors:
        raise UsageError(f"{definition.name}: {'; '.join(errors)}")
    return definition.with_derived(values)


def _refuse_expanded(definition: Command, argv: Sequence[str]) -> None:
    """Raise UsageError where the shell has put the names of files in the place of a pattern."""
    for flag in [p.flag for p in definition.ports if isinstance(p.mark, Option) and p.mark.glob and p.flag in argv]:
        words = [*takewhile(lambda word: not word.startswith("-"), argv[argv.index(flag) + 1 :])]
        if len(words) > 1 and all(Path(word).is_file() for word in words[:2]):
            pattern = str(Path(words[0]).with_name(f"*{Path(words[0]).suffix}"))
            raise UsageError(
                f"{flag} has {len(words)} words, such as {words[0]}, for the shell replaces a pattern by the files "
                f"that match it; quote the pattern, as in {flag} '{pattern}'"
            )


def expand_lists(definition: Command, argv: Sequence[str]) -> list[str]:
    """A command with the paths that its list files contain: `--records @records.txt` for more than a command may have.

    A list file has one path on each line; one that ends in .json is a JSON list of paths, or of files and folders as
    CWL describes them. A file whose own name begins with @ is `./@name`. Raises UsageError for one that cannot be read.
    """
    flags = {p.flag for p in definition.of(Input) if p.is_list}
    flag, words = "", list[str]()
    for word in argv:
        flag = word if word.startswith("--") else flag
        paths = _read_list(flag, Path(word[1:])) if flag in flags and word.startswith("@") else [word]
        if not paths and words[-1] == flag:
            # An option with an empty list alone is not given.
            words.pop()
        words += paths
    return words


def expand_settings(definition: Stage, argv: Sequence[str]) -> list[str]:
    """A command with the options that `--settings JSON` has by their names, in the place of the same ones before.

    So a workflow of CWL gives each trial its settings. Raises UsageError for what is not JSON of options of the stage.
    """
    if SETTINGS not in argv or definition.name != "train":
        return [*argv]
    position = argv.index(SETTINGS)
    text = argv[position + 1] if position + 1 < len(argv) else ""
    words = [*argv[:position], *argv[position + 2 :]]
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{SETTINGS} {text} is not JSON: {error}") from error
    ports = {port.name: port for port in definition.options}
    if not isinstance(settings, dict) or not settings.keys() <= ports.keys():
        names = some_of(sorted(settings.keys() - ports.keys())) if isinstance(settings, dict) else text
        raise UsageError(f"{SETTINGS} has {names}, but needs options of {definition.name} with values: a JSON object")
    for name, value in settings.items():
        words = [*_without(words, ports[name].flag), *to_args(ports[name], value)]
    return words


def _without(words: Sequence[str], flag: str) -> list[str]:
    """Words of a command without an option and its values."""
    others, is_of_flag = list[str](), False
    for word in words:
        is_of_flag = word == flag or word.startswith(f"{flag}=") or (is_of_flag and not is_option(word))
        others += [] if is_of_flag else [word]
    return others


def _read_list(flag: str, path: Path) -> list[str]:
    """The paths in a list file. Raises UsageError, which names the option, where they cannot be read."""
    name = f"{flag}: the list file {path}"
    try:
        text = read_text(path)
        entries = json.loads(text) if path.suffix == ".json" else [line for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not a list of paths: {error}") from error
    if isinstance(entries, list):
        # Engines of CWL list jobs that did not run as null, and what is repeated twice as lists.
        rows = [row for entry in entries for row in (entry if isinstance(entry, list) else [entry]) if row is not None]
        entries = [row.get("path") if isinstance(row, dict) else row for row in rows]
    if not isinstance(entries, list) or not all(isinstance(entry, str) and entry for entry in entries):
        raise UsageError(f"{name} is not a list of paths: write one path on each line")
    return entries


def _reason(error: "ValidationError") -> str:
    first = error.errors()[0]
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"is {first['input']!r}: {message}"


def check_uses(definition: Stage, values: Mapping[str, Any]) -> None:
    """Raise UsageError for ports that a choice lacks or does not use, by the table `USES` of the stage's module."""
    for option, uses in getattr(import_module(definition.function.__module__), "USES", {}).items():
        needed, more = uses[values[option]]
        with_value = [port for port in definition.ports if values[port.name] != port.default]
        lacking = [port.flag for port in definition.ports if port.name in needed and port not in with_value]
        others = [port.flag for port in with_value if not port.required and port.name not in (option, *needed, *more)]
        rows = (("needs", lacking), ("does not use", others))
        if texts := [f"{verb} {', '.join(flags)}" for verb, flags in rows if flags]:
            raise UsageError(f"{definition.name} --{option} {values[option]} {' and '.join(texts)}")


def check_inputs(definition: Stage, values: dict[str, Any]) -> None:
    """Check that every input exists and matches its manifest.

    Raises BadInputError that lists missing inputs, IntegrityError for a damaged one, and what a stage raises for a
    pattern or list of files.
    """
    from eopipe.publish import MANIFEST, verify

    missing, published = list[str](), list[Path]()
    for port in definition.of(Input):
        paths = definition.paths(port, values)
        if isinstance(port.mark, Input) and port.mark.files:
            # Each file is checked where it is read.
            continue
        for path in paths:
            if not path.exists():
                missing.append(f"{port.flag} {path}")
                continue
            refuse_endless(path)
            if (path / MANIFEST).is_file():
                published.append(path)
    if missing:
        raise BadInputError(f"{definition.name}: these inputs do not exist: {some_of(missing)}")
    verify(*published, content=os.environ.get("EOPIPE_VERIFY", "content") != "size")
