"""The identity of a training: its data, its settings, its model and the code's revision."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.publish import read_json

MAX_LISTED = 5


def refuse_other(path: Path, current: dict[str, Any], stored: dict[str, Any]) -> None:
    """Raise BadInputError, with what differs, when a state belongs to another training."""
    rows = list(differences(current, stored))
    if rows:
        more = f" and {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
        raise BadInputError(
            f"{path} is the state of another training: {'; '.join(rows[:MAX_LISTED])}{more}; "
            "use the inputs and settings that it started with, or remove it to start afresh"
        )


def differences(current: Any, stored: Any, name: str = "") -> Iterator[str]:
    """The leaves of two JSON values that are not the same, as `settings.seed is 1 here and 0 there`."""
    if isinstance(current, dict) and isinstance(stored, dict):
        for key in sorted(current.keys() | stored.keys()):
            yield from differences(current.get(key), stored.get(key), f"{name}.{key}".lstrip("."))
    elif _as_json(current) != _as_json(stored):
        yield f"{name} is {current} here and {stored} there"


def _as_json(value: Any) -> Any:
    """A value as it is after a round trip through JSON."""
    return [_as_json(v) for v in value] if isinstance(value, (list, tuple)) else value


def other_states(state_root: Path, state: Path, identity: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The state folders beside this one, each with what differs."""
    for path in sorted(state_root.glob("*/identity.json")):
        if path.parent != state:
            yield path.parent, "; ".join(islice(differences(identity, read_json(path)), MAX_LISTED))
