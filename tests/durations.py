"""How long tests and their fixtures take: recorded by `make test-all`, used to mark what is slow.

`durations.json` holds seconds of tests and fixtures of 0.5 s and more, and of each file all its tests that are not
slow. A test over 2 s, or one that needs a fixture over 2 s, carries the mark `slow`: `make quick` leaves it out.
"""

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
# Each process of a recorded session writes what it measured into this folder.
FOLDER = "EOPIPE_DURATIONS"
SLOW_S, WORTH_S = 2.0, 0.5


def recorded() -> dict[str, dict[str, float]]:
    """The recorded seconds of `tests`, `fixtures` and `files`."""
    empty: dict[str, dict[str, float]] = {"tests": {}, "fixtures": {}, "files": {}}
    return empty | json.loads(FILE.read_text()) if FILE.is_file() else empty


def test_name(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.partition("[")[0]


class Recorder:
    """Measures the calls of tests and the set-up of fixtures of one process."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, list[float]]] = {"tests": defaultdict(list), "fixtures": defaultdict(list)}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Time a fixture; what it needs itself is set up before."""
        start = time.perf_counter()
        result = yield
        self.seconds["fixtures"][fixturedef.argname].append(time.perf_counter() - start)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the seconds of a call."""
        if report.when == "call":
            self.seconds["tests"][test_name(report.nodeid)].append(report.duration)

    def pytest_sessionfinish(self) -> None:
        """Write what this process measured."""
        path = Path(os.environ[FOLDER], f"{uuid.uuid4().hex}.json")
        path.write_text(json.dumps(self.seconds))


def merge(folder: Path) -> None:
    """Write `durations.json` from the parts that the processes of a session left in a folder."""
    seconds: dict[str, dict[str, list[float]]] = {"tests": defaultdict(list), "fixtures": defaultdict(list)}
    for path in folder.glob("*.json"):
        for kind, values in json.loads(path.read_text()).items():
            for name, measured in values.items():
                seconds[kind][name] += measured
    longest = {kind: {name: max(values) for name, values in rows.items()} for kind, rows in seconds.items()}
    files: dict[str, float] = defaultdict(float)
    for name, values in seconds["tests"].items():
        if max(values) <= SLOW_S:
            files[name.partition("::")[0]] += sum(values)
    worth = {kind: {n: s for n, s in rows.items() if s >= WORTH_S} for kind, rows in longest.items()}
    kinds = {**worth, "files": files}
    table = {kind: {name: round(s, 1) for name, s in sorted(rows.items())} for kind, rows in kinds.items()}
    FILE.write_text(json.dumps(table, indent=1) + "\n")


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark every test that took over 2 s, or needs a fixture that did."""
    known = recorded()
    for item in items:
        needed = [known["fixtures"].get(name, 0) for name in getattr(item, "fixturenames", ())]
        if max(known["tests"].get(test_name(item.nodeid), 0), *needed, 0) > SLOW_S:
            item.add_marker(pytest.mark.slow)


if __name__ == "__main__":
    merge(Path(os.environ[FOLDER]))
