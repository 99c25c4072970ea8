"""How long tests and their fixtures take, and which modules their processes load: `make durations` records them.

`durations.json` has for each test, its parameters taken together, the longest and the summed seconds of wall time, the
summed processor seconds, its own and those of the processes that it starts, and the share of its parameters that are
exhaustive; for each fixture of 0.1 s and more the longest wall and processor seconds; for each test and fixture that
starts processes the modules of eopipe that these load. `make quick` chooses by it, the suites are balanced by it.
"""

import json
import os
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
# Each process of a recorded session writes what it measured into this folder; so do those of the warm server.
FOLDER = "EOPIPE_DURATIONS"
# Who starts processes: the fixture that is being set up, else the test.
STARTER = "EOPIPE_STARTER"
WORTH_S = 0.1
KINDS = ("tests", "fixtures", "processes")


def test_name(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.partition("[")[0]


def fixture_name(definition: Any) -> str:
    """A fixture with the file or folder that defines it."""
    return f"{definition.baseid}::{definition.argname}"


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Recorder:
    """Measures the calls of tests and the set-up of fixtures of one process."""

    def __init__(self) -> None:
        self.tests: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
        self.fixtures: dict[str, list[tuple[float, float]]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Time a fixture; what it needs itself is set up before."""
        name, outer = f"{fixturedef.baseid}::{fixturedef.argname}", os.environ.get(STARTER, "")
        os.environ[STARTER] = name
        start, cpu = time.perf_counter(), _cpu_s()
        try:
            return (yield)
        finally:
            self.fixtures[name].append((time.perf_counter() - start, _cpu_s() - cpu))
            os.environ[STARTER] = outer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Time the call of a test."""
        name = os.environ[STARTER] = test_name(item.nodeid)
        start, cpu = time.perf_counter(), _cpu_s()
        try:
            return (yield)
        finally:
            is_exhaustive = item.get_closest_marker("exhaustive") is not None
            self.tests[name].append((time.perf_counter() - start, _cpu_s() - cpu, is_exhaustive))

    def pytest_sessionfinish(self) -> None:
        """Write what this process measured."""
        path = Path(os.environ[FOLDER], f"{uuid.uuid4().hex}.json")
        path.write_text(json.dumps({"tests": self.tests, "fixtures": self.fixtures}))


def merge(folder: Path, existing: set[str]) -> None:
    """Renew the rows of `durations.json` that the processes of a session measured; drop tests that are gone."""
    tests: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    fixtures: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in folder.glob("*.json"):
        measured = json.loads(path.read_text())
        for rows, kind in ((tests, "tests"), (fixtures, "fixtures")):
            for name, values in measured[kind].items():
                rows[name] += values
    cpu, modules = _processes(folder)
    table = json.loads(FILE.read_text()) if FILE.is_file() else {"modules": [], **{kind: {} for kind in KINDS}}
    for name, test in tests.items():
        walls, cpus, exhaustive = zip(*test, strict=True)
        times = (max(walls), sum(walls), sum(cpus) + cpu[name])
        table["tests"][name] = [*(round(value, 1) for value in times), round(sum(exhaustive) / len(test), 2)]
    for name, fixture in fixtures.items():
        walls, cpus = zip(*fixture, strict=True)
        table["fixtures"][name] = [round(max(walls), 1), round(max(cpus) + cpu[name] / len(fixture), 1)]
    loaded = {name: {table["modules"][number] for number in numbers} for name, numbers in table["processes"].items()}
    loaded = {name: names for name, names in (loaded | modules).items() if names}
    table["modules"] = sorted(set().union(*loaded.values()))
    table["processes"] = {name: [table["modules"].index(m) for m in sorted(names)] for name, names in loaded.items()}
    files = {name.partition("::")[0] for name in existing}
    for kind in KINDS:
        table[kind] = {
            name: row
            for name, row in table[kind].items()
            if name in existing
            or ("::test_" not in name and any(file.startswith(name.partition("::")[0]) for file in files))
        }
    table["fixtures"] = {name: row for name, row in table["fixtures"].items() if row[0] >= WORTH_S}
    _write(table)


def _processes(folder: Path) -> tuple[dict[str, float], dict[str, set[str]]]:
    """Processor seconds and modules of the processes that the warm server forked, for each test and fixture."""
    cpu: dict[str, float] = defaultdict(float)
    modules: dict[str, set[str]] = defaultdict(set)
    for path in folder.glob("*.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            cpu[row["starter"]] += row.get("cpu_s", 0.0)
            modules[row["starter"]] |= set(row.get("modules", ()))
    return cpu, modules


def _write(table: dict[str, Any]) -> None:
    """One line for each row, so that a change is easy to read."""
    parts = [f' "modules": {json.dumps(table["modules"])}']
    for kind in KINDS:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(table[kind].items()))
        parts.append(f' "{kind}": {{\n{lines}\n }}')
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    merge(Path(sys.argv[1]), set(sys.stdin.read().split()))
