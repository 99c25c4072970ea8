"""Seeded changes of what eopipe reads: of the values of a JSON document, and of the bytes of a file."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SURROGATE, BIDI = "\ud800", "\u202e"
RING = [[0, 0], [1, 1], [0, 1]]
NAN, INFINITE = float("nan"), float("inf")
# What somebody may write in place of any value.
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 10**30, -(10**30), 10**400, 1e308, NAN, INFINITE, -0.5),
    *("", "x", "ü" * 50, "a\0b", "../x", "/etc/passwd", "--x", "2020-01-01", "2020-13-99T99:99", "nan", "1e999"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "EPSG:4326", "EPSG:0", "EPSG:999999", "http://[::1/x"),
    *("http://x:99999999/a", SURROGATE, BIDI, "{x}", [], [[]], [None], [1, 2, 3], [NAN] * 6, {}, {"a": 1}, [{}]),
    *({"type": "Polygon", "coordinates": []}, {"type": "Point", "coordinates": [0, 0]}, {"type": "MultiPolygon"}),
    {"type": "GeometryCollection", "geometries": []},
    {"type": "Polygon", "coordinates": [RING]},
    {"type": "Polygon", "coordinates": [[[0, 0], [NAN, 1], [0, 1], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1e300, 1], [0, 1], [0, 0]]]},
    {"type": "MultiPolygon", "coordinates": [[[[200, 95], [201, 96], [200, 96], [200, 95]]]]},
    [[0, 0, 0], [0, 0]],
]
KEYS = ("id", "type", "href", "proj:code", "proj:epsg", "datetime", "nodata", "raster:bands", "name", "@id", "links")
LETTERS = ("\n", "\x00", "é", "/", "'", "{", "%", "1", "\x1b[31m")
YAML = ("", "\t", ":", "-", "[", "{", "&a", "*a", "!!python/name:os.system", "\x00", "\xe9", "'", '"', "#", "|", ">")
Change = Callable[[random.Random], Callable[[], Any]]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value inside a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*path, key)
        yield from paths(value[key], (*path, key))


def mutated(value: Any, dice: random.Random, times: int = 0) -> Any:
    """A copy of a value with a few changes: replaced, removed, moved, doubled and misspelt entries."""
    value = copy.deepcopy(value)
    for _ in range(times or dice.choice((1, 1, 1, 2, 4))):
        if places := list(paths(value)):
            _change(value, dice.choice(places), places, dice)
    return value


def _change(value: Any, path: tuple[Any, ...], places: list[tuple[Any, ...]], dice: random.Random) -> None:
    owner = _at(value, path[:-1])
    entry, kind = owner[path[-1]], dice.random()
    if kind < 0.6:
        owner[path[-1]] = copy.deepcopy(dice.choice(VALUES))
    elif kind < 0.72:
        owner.pop(path[-1])
    elif kind < 0.82:
        owner[path[-1]] = copy.deepcopy(_at(value, dice.choice(places)))
    elif kind < 0.88 and isinstance(owner, dict):
        owner[dice.choice(KEYS)] = copy.deepcopy(dice.choice(VALUES))
    elif isinstance(entry, int | float) and not isinstance(entry, bool):
        owner[path[-1]] = dice.choice(
            (-entry, entry * 10 ** dice.randint(1, 9), entry + (0.5 if abs(entry) < 1e300 else 0), str(entry))
        )
    elif isinstance(entry, str):
        at = dice.randrange(len(entry) + 1)
        owner[path[-1]] = entry[:at] + dice.choice(LETTERS) + entry[at:]
    else:
        owner[path[-1]] = copy.deepcopy(dice.choice(VALUES))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutated_bytes(content: bytes, dice: random.Random) -> bytes:
    """A copy of a TIFF file with a few changed bytes, mostly near its ends, where directories are."""
    changed = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 4, 8))):
        last = len(changed) - 1
        at = dice.choice((dice.randrange(600), last - dice.randrange(2500), dice.randrange(last))) % last
        if dice.random() < 0.5:
            changed[at] ^= 1 << dice.randrange(8)
        else:
            word = dice.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\1\0", b"\x7f", b"\xff"))
            changed[at : at + len(word)] = word
    return bytes(changed[: dice.randrange(8, len(changed))] if dice.random() < 0.08 else changed)


def json_file(path: Path, value: Any, read: Callable[[], Any]) -> Change:
    """Changes of a JSON file at `path` whose sound content is `value`."""

    def change(dice: random.Random) -> Callable[[], Any]:
        path.write_text(json.dumps(mutated(value, dice)))
        return read

    return change
