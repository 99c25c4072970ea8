"""Every test belongs to one suite, and the recorded durations to tests that exist."""

import ast
from pathlib import Path

import durations
import pytest

from dev.suites import CLUSTER, SUITES, TESTS

MODULES = {str(path.relative_to(TESTS)): path for path in TESTS.glob("*/test_*.py")}
RECORDED = durations.recorded()


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_test_module_is_in_one_suite() -> None:
    for name in MODULES:
        suites = [
            suite.name
            for suite in (*CLUSTER[1:], *SUITES)
            if any(name == path or name.startswith(f"{path}/") for path in suite.paths) and name not in suite.without
        ]
        assert len(suites) == 1, (name, suites)
    assert {
        path for suite in (*CLUSTER, *SUITES) for path in (*suite.paths, *suite.without) if path.endswith(".py")
    } <= set(MODULES)


def test_recorded_durations_are_of_tests_that_exist() -> None:
    assert RECORDED["tests"], "make durations records them"
    for name in RECORDED["tests"]:
        path, _, function = name.partition("::")
        assert function in functions(MODULES[path.removeprefix("tests/")]), name


def test_exactly_what_took_over_two_seconds_is_slow(request: pytest.FixtureRequest) -> None:
    names = {fixture for fixture, seconds in RECORDED["fixtures"].items() if seconds > durations.SLOW_S}
    for item in request.session.items:
        took_long = RECORDED["tests"].get(durations.test_name(item.nodeid), 0) > durations.SLOW_S
        slow = took_long or bool(names.intersection(getattr(item, "fixturenames", ())))
        assert slow == (item.get_closest_marker("slow") is not None), item.nodeid
