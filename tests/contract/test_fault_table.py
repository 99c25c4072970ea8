"""The tables of faults and threats name tests that exist, in every row."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from eopipe.cli import COMMANDS, PASSED_ON, definitions
from eopipe.contract import STAGES, Command, Output, is_path, stage

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/faults.md").read_text()
# There are no rows 3, 9 and 10.
ROWS = [f"T{number:02}" for number in (1, 2, 4, 5, 6, 7, 8, *range(11, 22))]


def table() -> dict[str, list[str]]:
    """The tests that the last column of each row names."""
    rows = [line.split("|")[1:-1] for line in TEXT.splitlines() if line.startswith("| T")]
    return {row[0].strip(): re.findall(r"`(tests/[^`]+)`", row[-1]) for row in rows}


def names_of_tests(path: str) -> set[str]:
    nodes = ast.parse((ROOT / path).read_text()).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_is_there_with_tests() -> None:
    assert list(table()) == ROWS
    assert all("::" in name for names in table().values() for name in names)
    assert all(table().values())


def test_every_test_that_is_named_exists() -> None:
    named = [name.split("::") for name in re.findall(r"`(tests/\w+/test_\w+\.py::\w+)`", TEXT)]
    assert len(named) > len(ROWS)
    assert [f"{path}::{test}" for path, test in named if test not in names_of_tests(path)] == []


def test_every_threat_has_what_it_can_and_cannot_do_with_tests_that_exist() -> None:
    lines = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[1:] if line.count("|") == 5]
    assert {row[0].split(":")[0].split(",")[0] for row in rows} >= {
        *("catalog", "item", "scene file", "model", "crate", "results with run records", "config"),
    }
    assert all(all(row) and len(row) == 4 for row in rows)
    for row in rows:
        named = re.findall(r"`(tests/\w+/test_\w+\.py)::(\w+)`", row[-1])
        assert named, row[0]
        assert [name for path, name in named if name not in names_of_tests(path)] == []


def commands() -> Iterator[Command]:
    """Every command but the one that passes its arguments on to Snakemake."""
    for group in COMMANDS.values():
        for name in group:
            if name != PASSED_ON:
                yield from definitions(name).values()
    yield from map(stage, STAGES)


def test_every_argument_that_may_be_of_a_stranger_has_a_row_that_says_what_it_is() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| ([a-z ]+) \| (`.*) \|$", text.partition("## Every argument")[2], re.MULTILINE)
    listed = [
        (argument, command)
        for _, arguments in rows
        for argument, names in re.findall(r"`([^`]+)` \(([^)]+)\)", arguments)
        for command in names.split(", ")
    ]
    expected = {
        (port.name.upper().rstrip("_") if port.positional else port.flag, command.name)
        for command in commands()
        for port in command.ports
        if not isinstance(port.mark, Output) and (is_path(port) or port.name in ("url", "images", "masks"))
    }
    assert sorted(listed) == sorted(expected)
    threats = {
        re.split(r"[:,] | or results", line.split("|")[1])[0].strip()
        for line in text.splitlines()
        if line.count("|") == 5
    }
    assert {kind for kind, _ in rows} - threats == {"target"}
