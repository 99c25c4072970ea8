"""Text, JSON and YAML of files that others may have made: of regular files alone, of a bounded number of bytes."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, RefusedError, UsageError

MAX_TEXT = 1 << 29
# Values of a config; with aliases a short file can expand to more than fit into memory.
MAX_VALUES = 100_000


def refuse_endless(path: Path) -> None:
    """Raise BadInputError for a pipe, a socket or a device, which may have no end; also behind a link."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BadInputError(f"{path} is a pipe or a device, not a file; write it to a file first")


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, without the mark that may begin it.

    Raises OSError and UnicodeDecodeError as `open` does, BadInputError for a pipe or a device, RefusedError above 512
    MiB.
    """
    refuse_endless(path)
    if (size := path.stat().st_size) > MAX_TEXT:
        raise RefusedError(f"{path} has {size >> 20} MiB, and at most {MAX_TEXT >> 20} MiB of a text are read")
    return path.read_text(encoding="utf-8-sig")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON so that the same value gives the same bytes; without indent on one line."""
    between = None if indent else (",", ":")
    text = json.dumps(value, indent=indent, separators=between, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises BadInputError with its path if it cannot be read or parsed."""
    try:
        return json.loads(read_text(Path(path)))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not valid JSON: {error}") from error
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}") from error


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a config file, unchecked. Raises UsageError for what is not YAML with one key per setting."""
    import yaml

    try:
        text = read_text(path)
        values = parse_yaml(text)
        duplicates = sorted(_duplicate_keys(yaml.compose(text, Loader=yaml.SafeLoader)))
    except TooManyValuesError as error:
        raise UsageError(f"{path} {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is not a config: it is nested too deeply") from error
    # A ValueError is about bytes that are not text, or a number with thousands of digits.
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path} is not valid YAML: {_yaml_reason(error)}") from error
    if duplicates:
        rows = "; ".join(f"{key} on lines {first} and {second}" for first, second, key in duplicates)
        raise UsageError(f"{path} has a key twice, and YAML would keep only the last one: {rows}; merge them")
    if not isinstance(values or {}, dict):
        raise UsageError(f"{path} is not a config: write sections such as `search:` with `name: value` lines below")
    return values or {}


class TooManyValuesError(ValueError):
    """A YAML text is short, and what it means does not fit into memory."""


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, which may be a stranger's. Raises yaml.YAMLError, ValueError or RecursionError."""
    import yaml

    if _expanded(yaml.compose(text, Loader=yaml.SafeLoader), {}) > MAX_VALUES:
        raise TooManyValuesError(f"has aliases that expand to more than {MAX_VALUES} values; write them out")
    return yaml.safe_load(text)


def _expanded(node: Any, known: dict[int, int]) -> int:
    """The number of values of a YAML node, with each alias expanded."""
    from yaml import CollectionNode

    if id(node) not in known:
        values = node.value if isinstance(node, CollectionNode) else ()
        entries = [entry for value in values for entry in (value if isinstance(value, tuple) else (value,))]
        # A node that contains itself has no end.
        known[id(node)] = MAX_VALUES
        known[id(node)] = 1 + sum(_expanded(entry, known) for entry in entries)
    return known[id(node)]


def _duplicate_keys(root: Any) -> Iterator[tuple[int, int, str]]:
    """First line, second line and name of each key that a mapping has twice."""
    # An alias is the same node again, and may be inside itself.
    visited: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        entries = getattr(node, "value", None)
        if id(node) in visited or not isinstance(entries, list):
            continue
        visited.add(id(node))
        lines: dict[str, int] = {}
        for entry in entries:
            key, value = entry if isinstance(entry, tuple) else (None, entry)
            pending.append(value)
            if not isinstance(name := getattr(key, "value", None), str):
                continue
            line = key.start_mark.line + 1
            if name in lines:
                yield lines[name], line, name
            lines[name] = line


def _yaml_reason(error: Exception) -> str:
    """What is wrong in a line of a YAML file."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return str(error).splitlines()[0]
    if "'\\t'" in str(problem):
        return f"line {mark.line + 1} has a tab; indent with spaces"
    context = getattr(error, "context", None)
    return f"{problem}{f' {context}' if context else ''} in line {mark.line + 1}, column {mark.column + 1}"
