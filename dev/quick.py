"""`make quick`: format, types, imports, derived files, and the tests nearest to what changed, in less than a minute.

What changed is what differs from HEAD, or the last commit where nothing does. Which tests that concerns follows from
imports: of the package, where a text that names a module counts too, since a process starts it; of each test with the
helpers and fixtures that it uses, where a name that a package imports when it is used is the module that has it; and
from the modules that the processes of a test loaded when `make durations` recorded them. One test of each file that
uses the module directly is first. Then come those with a rare word of the changed lines in their text, and with
a word of the changed module in their name, then those that are short, then those that reach little else, by turns of
their files. Tests that read every file of the package run with any change.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dev import revisions
from dev.imports import ROOT, imports, module_of

DURATIONS = ROOT / "tests/durations.json"
# Tests that only compute.
COMPUTING = ("tests/unit/", "tests/contract/")
# The tests' part of the minute; format, types and imports take the rest, on the other core.
TESTS_S = 30.0
# What each test takes beside its recorded seconds: short fixtures, its share of imports.
SETUP_S = 0.05
# A test that takes longer with its fixtures is not quick.
SLOW_S = 12.0
# Steps that a module is away from a test whose processes load it, and steps that a word in common is worth.
PROCESS_STEPS, WORD_STEPS = 4, 3
# Seconds of a test that are worth a step, and steps between a test of a file and the next.
STEP_S, TURN_STEPS = 2.0, 0.5
# A word that more tests have says little about any of them.
RARE_TESTS = 40
# The part of these seconds for one test of each file that uses a changed module directly.
DIRECT_S = TESTS_S / 2
# What a file of tests takes to import.
FILE_S = 0.1
# These read every file of the package, whatever they import.
READERS = tuple(f"tests/contract/test_{name}.py" for name in ("house", "one_owner", "versions", "words"))
CHECKS = (
    ["ruff", "check", "--quiet", "."],
    ["ruff", "format", "--quiet", "--check", "."],
    ["mypy"],
    ["lint-imports", "--no-cache"],
    [sys.executable, "-m", "dev.sync", "--check"],
    [sys.executable, "-m", "pytest", "-q", *READERS],
)
# Beside them where a rule changed: they take seconds.
CHECKS_OF_RULES = (
    ["snakefmt", "--check", "Snakefile", "workflow"],
    ["snakemake", "--lint"],
)
# Changes of these are looked at by the contract tests.
DERIVED = ("workflow/", "profiles/", "cwl/", "config/", "docs/", "README.md", "pyproject.toml", "Makefile", "Snakefile")


def changed() -> list[str]:
    """The files that differ from HEAD; of a clean checkout the files of the last commit, all if it has no parent."""
    listed = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return listed or git("diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-m", "--first-parent", "HEAD")


def git(*argv: str) -> list[str]:
    """The lines that git prints."""
    done = subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout.split("\n")[:-1]


def changed_lines() -> list[str]:
    """The lines of the package that differ from HEAD, as they are and as they were."""
    lines = git("diff", "--unified=0", "HEAD", "--", "eopipe")
    return [line[1:] for line in lines if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))]


def text_of_head(file: str) -> str:
    """The text of a file in HEAD; empty where it is new."""
    return "\n".join(git("show", f"HEAD:{file}")) if git("ls-tree", "HEAD", "--", file) else ""


def text_of_file(file: str) -> str:
    """The text of a file as it is; empty where there is none."""
    return (ROOT / file).read_text() if (ROOT / file).is_file() else ""


@dataclass(frozen=True)
class Durations:
    """The table that tests/durations.py writes."""

    # Longest and summed wall seconds, CPU seconds, share of the parameters that is exhaustive.
    tests: dict[str, tuple[float, float, float, float]]
    # Wall and CPU seconds.
    fixtures: dict[str, tuple[float, float]]
    modules: list[str]
    # For tests and fixtures, numbers of the modules that their processes loaded.
    processes: dict[str, list[int]]

    def seconds(self, test: str) -> float:
        """Seconds of all parameters of a test; unit tests only compute, and load stretches their wall time."""
        _, wall, cpu, _ = self.tests[test]
        return min(wall, cpu) if test.startswith(COMPUTING) else wall

    def is_quick(self, test: str) -> bool:
        """Whether `make quick` may run it: what an exhaustive test of other folders shares with others may be long."""
        return not self.tests[test][3] or test.startswith(COMPUTING)


@cache
def durations() -> Durations:
    """The recorded durations."""
    if not DURATIONS.is_file():
        sys.exit("tests/durations.json is missing: `git checkout tests/durations.json`, or `make durations`")
    return Durations(**json.loads(DURATIONS.read_text()))


class Reach:
    """Which tests a change reaches, and how near they are."""

    def __init__(self, uses: dict[str, set[str]]) -> None:
        self.uses = uses
        self.users: dict[str, set[str]] = {}
        for user, names in uses.items():
            for name in names:
                self.users.setdefault(name, set()).add(user)
        table = durations()
        self.loaded = {name: {table.modules[number] for number in numbers} for name, numbers in table.processes.items()}

    def distances(self, files: Sequence[str]) -> dict[str, int]:
        """Each test that a change of these files reaches, with the number of imports between."""
        starts = {module_of(file) for file in files} | {name for name in self.uses if name.partition("::")[0] in files}
        steps = dict.fromkeys(starts & (self.uses.keys() | self.users.keys()), 0)
        self._spread(steps)
        for name, modules in self.loaded.items():
            if modules & starts and steps.get(name, PROCESS_STEPS) >= PROCESS_STEPS:
                steps[name] = PROCESS_STEPS
        # A fixture that starts processes is used by tests.
        self._spread(steps)
        if any(file.startswith(DERIVED) for file in files):
            steps |= {name: 1 for name in self.uses if name.startswith("tests/contract/") and name not in steps}
        return {name: step for name, step in steps.items() if _is_test(name) and not name.startswith(READERS)}

    def _spread(self, steps: dict[str, int]) -> None:
        queue = deque(sorted(steps, key=lambda name: steps[name]))
        while queue:
            name = queue.popleft()
            for user in self.users.get(name, ()):
                # A fixture adds no step to the test that uses it, and a package none to those that use a module of it.
                step = steps[name] + (not name.startswith(("tests/", f"{user}.")))
                if step < steps.get(user, step + 1):
                    steps[user] = step
                    queue.append(user)

    @cache  # noqa: B019 - one object a run
    def width(self, test: str) -> int:
        """How many modules a test reaches, through imports or its processes."""
        names, queue = {test}, [test]
        while queue:
            new = self.uses.get(queue.pop(), set()) - names
            names |= new
            queue += new
        return len({name for name in names if name.startswith("eopipe.")} | self.loaded.get(test, set()))


def _file(name: str) -> str:
    return name.partition("::")[0]


def _is_test(name: str) -> bool:
    path, _, symbol = name.partition("::")
    return Path(path).name.startswith("test_") and symbol.startswith("test_")


def _words(text: str) -> set[str]:
    """The words of a name, each by its first five letters, so that `splits` is `split` and `training` is `train`."""
    return {word[:5].removesuffix("s") for word in re.findall(r"[a-z]{4,}", text.lower())}


def test_words() -> dict[str, set[str]]:
    """The words in the text of each test."""
    words: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                words[f"{path.relative_to(ROOT)}::{node.name}"] = _words("\n".join(lines[start - 1 : node.end_lineno]))
    return words


def with_rare_words(lines: Sequence[str], tests: Iterable[str]) -> set[str]:
    """The tests that have a word of these lines that few of them have."""
    every = test_words()
    words = {name: every[name] for name in tests if name in every}
    counts = Counter(word for test in words.values() for word in test)
    rare = {word for word in _words(" ".join(lines)) if counts[word] <= RARE_TESTS}
    return {name for name, test in words.items() if test & rare}


def nearest(reach: Reach, files: Sequence[str], lines: Sequence[str] = ()) -> tuple[list[str], int, int]:
    """The tests that fit into the time, nearest first; how many a change reaches, and how many have no duration."""
    steps = reach.distances(files)
    table = durations()
    words = _words(" ".join(Path(file).with_suffix("").as_posix() for file in files if file.startswith("eopipe/"))) - {
        "eopip"
    }

    def rank(name: str) -> tuple[float, int, float]:
        path, _, test = name.partition("::")
        common = 2 * bool(words & _words(Path(path).stem)) + bool(words & _words(test)) + 2 * (name in of_lines)
        return steps[name] - WORD_STEPS * common + table.seconds(name) / STEP_S, reach.width(name), table.seconds(name)

    of_lines = with_rare_words(lines, steps)
    known = [name for name in steps if name in table.tests]
    order = sorted(filter(table.is_quick, known), key=rank)
    chosen: list[str] = []
    ready: set[str] = set()
    total = 0.0
    for name, limit in by_turns(order, {name: rank(name)[0] for name in order}, steps):
        file = _file(name)
        fixtures = _slow_fixtures(reach, name) | {file}
        parts = [table.fixtures[part][0] if part in table.fixtures else FILE_S for part in fixtures - ready]
        seconds = SETUP_S + table.seconds(name) + sum(parts)
        if name not in chosen and seconds <= SLOW_S and total + seconds <= limit:
            chosen.append(name)
            ready |= fixtures
            total += seconds
    # The tests of a file together, or its fixtures are made more than once.
    files_in_order = list(dict.fromkeys(map(_file, chosen)))
    return sorted(chosen, key=lambda name: files_in_order.index(_file(name))), len(steps), len(steps) - len(known)


def by_turns(order: Sequence[str], ranks: dict[str, float], steps: dict[str, int]) -> list[tuple[str, float]]:
    """Tests with the seconds until which they run: the first of each file that is a step away, then all by turns.

    Each further test of a file counts as `TURN_STEPS` steps more than the one before.
    """
    firsts = {_file(name): name for name in reversed(order) if steps[name] <= 1}
    turns: Counter[str] = Counter()
    keys = {}
    for name in order:
        keys[name] = ranks[name] + TURN_STEPS * turns[_file(name)]
        turns[_file(name)] += 1
    direct = [name for name in order if firsts.get(_file(name)) == name]
    return [(name, DIRECT_S) for name in direct] + [(name, TESTS_S) for name in sorted(order, key=lambda n: keys[n])]


def _slow_fixtures(reach: Reach, test: str) -> set[str]:
    """The recorded fixtures that a test needs, also through others."""
    names, queue = {test}, [test]
    while queue:
        new = {name for name in reach.uses.get(queue.pop(), ()) if name.startswith("tests/")} - names
        names |= new
        queue += new
    recorded = durations().fixtures
    keys = {name: name.replace("/conftest.py::", "::") for name in names}
    return {key for key in keys.values() if key in recorded}


def run(commands: Iterable[Sequence[str]]) -> list[int]:
    """Run commands one after the other; their exit codes."""
    return [subprocess.run(line, cwd=ROOT, check=False).returncode for line in commands]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks beside the tests; returns 1 where any of them fails."""
    parser = argparse.ArgumentParser(prog="python -m dev.quick", description=(__doc__ or "").partition("\n\n")[0])
    help_of_package = "the tests nearest to the whole package, and no format, types and imports: for other versions"
    parser.add_argument("--package", action="store_true", help=help_of_package)
    parser.add_argument("--list", action="store_true", help="only print the tests")
    parser.add_argument("files", nargs="*", help="files to take as changed (default: those that are)")
    arguments = parser.parse_args(argv)
    files = git("ls-files", "eopipe") if arguments.package else arguments.files or changed()
    lines = [] if arguments.package or arguments.files else changed_lines()
    chosen, reached, unknown = nearest(Reach(imports()), files, lines)
    print(f"{len(files)} files reach {reached} tests, of which the nearest {len(chosen)} run", flush=True)
    if unknown:
        print(f"{unknown} of them have no recorded duration, so they do not run: python -m dev.suites --record-missing")
    for warning in () if arguments.package else revisions.warnings(files, text_of_head, text_of_file):
        print(f"warning: {warning}")
    if arguments.list:
        print("\n".join(chosen))
        return 0
    checks = [] if arguments.package else list(CHECKS)
    if checks and any(file.startswith(("Snakefile", "workflow/")) for file in files):
        checks += CHECKS_OF_RULES
    with ThreadPoolExecutor(1) as pool:
        codes_of_checks = pool.submit(run, checks)
        codes = run([[sys.executable, "-m", "pytest", "-q", "-x", *chosen]]) if chosen else []
        return int(any(codes) or any(codes_of_checks.result()))


if __name__ == "__main__":
    sys.exit(main())
