"""The slices of the exhaustive tests, a table in `slices.json`: each run of CI has the one that has waited longest.

`runs` counts the runs of CI, `last` has for each slice the run that had it last (0: none), `tests` the slices of each
test, its parameters taken together, or of what takes the time where tests share that (`by`). A new test is added to the
slice with the fewest processor seconds, and no other test moves. Of the standard library alone, since `.ci/run` reads
it before anything is installed:

    python3 tests/slices.py            print the age of each slice, and last the number of the oldest
    python3 tests/slices.py --ran      note that the last run of CI had the oldest: the first commit of a push
    python3 -m tests.slices --write    add new tests and remove those that are gone; --check only says so
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("slices.json")
DURATIONS = Path(__file__).with_name("durations.json")
TABLE: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
# Of a test without a recorded duration.
UNKNOWN_S = 30.0
SLICES = tuple(map(str, range(len(TABLE["last"]))))


def key_of(nodeid: str, mark: Any) -> str:
    """The name by which the table has a test with the mark `exhaustive`."""
    return str(mark.kwargs.get("by") or nodeid.partition("[")[0])


def is_in(key: str, number: str) -> bool:
    """Whether a slice has a test; one that is not in the table yet is in each."""
    return int(number) in TABLE["tests"].get(key, map(int, SLICES))


def ages() -> list[int]:
    """The runs of CI since each slice was in one; of a slice that was in none, all there were and one more."""
    return [TABLE["runs"] - last + (not last) for last in TABLE["last"]]


def oldest() -> int:
    """The slice that has waited longest; of several the first."""
    return ages().index(max(ages()))


def with_new_tests(keys: Mapping[str, float]) -> dict[str, list[int]]:
    """The table of these tests, which have so many seconds: each new one in the slice that has fewest."""
    tests: dict[str, list[int]] = {key: numbers for key, numbers in TABLE["tests"].items() if key in keys}
    seconds = [0.0 for _ in SLICES]
    for key, numbers in tests.items():
        for number in numbers:
            seconds[number] += keys[key]
    for key in sorted(keys.keys() - tests.keys(), key=lambda key: (-keys[key], key)):
        number = seconds.index(min(seconds))
        tests[key] = [number]
        seconds[number] += keys[key]
    return dict(sorted(tests.items()))


def collected() -> dict[str, float]:
    """Each exhaustive test that pytest finds, with its recorded seconds."""
    import pytest

    names_of: dict[str, set[str]] = {}

    class Collector:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            for item in items:
                if mark := item.get_closest_marker("exhaustive"):
                    names_of.setdefault(key_of(item.nodeid, mark), set()).add(item.nodeid.partition("[")[0])

    with redirect_stdout(StringIO()) as printed:
        code = pytest.main(["--collect-only", "-q", "tests"], plugins=[Collector()])
    if code:
        sys.exit(printed.getvalue())
    recorded = json.loads(DURATIONS.read_text(encoding="utf-8"))["tests"]
    cost = lambda name: recorded[name][2] if name in recorded else UNKNOWN_S  # noqa: E731 - of one line
    return {key: sum(map(cost, names)) for key, names in names_of.items()}


def save() -> None:
    """Write the table, a line for each test."""
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(numbers)}" for key, numbers in TABLE["tests"].items())
    head = f'"runs": {TABLE["runs"]},\n "last": {json.dumps(TABLE["last"])}'
    FILE.write_text(f'{{\n {head},\n "tests": {{\n{rows}\n }}\n}}\n', encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print, write or check the table; 1 where a check finds that it is not the one to be written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    for name in ("--ran", "--write", "--check"):
        parser.add_argument(name, action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.write or arguments.check:
        tests = with_new_tests(collected())
        if tests != TABLE["tests"] and arguments.check:
            different = sorted(tests.keys() ^ TABLE["tests"].keys())
            print(f"{FILE.name} is not the table of {', '.join(different)}: python -m tests.slices --write")
            return 1
        TABLE["tests"] = tests
        save()
    elif arguments.ran:
        TABLE["runs"] += 1
        TABLE["last"][oldest()] = TABLE["runs"]
        save()
    else:
        rows = (f"{number}: {age}" for number, age in enumerate(ages()))
        print(f"runs of CI since each slice was in one: {', '.join(rows)}", file=sys.stderr)
        print(oldest(), TABLE["runs"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
