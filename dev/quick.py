"""`make quick`: format, types, imports, and the tests of what changed, nearest first, in less than a minute.

What changed is what differs from HEAD, or the last commit where nothing does. Which tests that concerns follows from
imports: of the package, of the tests, and of the modules behind the commands and stages that a test names.
"""

import argparse
import ast
import json
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grimp

from eopipe.cli import COMMANDS
from eopipe.contract import STAGES

ENTRIES = {name: entry for group in COMMANDS.values() for name, (entry, _) in group.items()}
ROOT = Path(__file__).parents[1]
# Of the minute; format, types and imports take the rest, on the other core.
TESTS_S = 30.0
# A file whose durations nobody recorded is new, and often one of whole runs.
UNKNOWN_S = 10.0
CHECKS = (
    ["ruff", "check", "--quiet", "."],
    ["ruff", "format", "--quiet", "--check", "."],
    ["mypy"],
    ["lint-imports", "--no-cache"],
)
# Changes of these are looked at by the contract tests.
DERIVED = ("workflow/", "profiles/", "cwl/", "config/", "docs/", "README.md", "pyproject.toml", "Makefile", "Snakefile")


def changed() -> list[str]:
    """The files that differ from HEAD; of a clean checkout those of the last commit, all if it has no parent."""
    listed = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return listed or _git("diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-m", "--first-parent", "HEAD")


def _git(*argv: str) -> list[str]:
    git = shutil.which("git") or "git"
    done = subprocess.run([git, *argv], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports, and those behind the stages and commands that it names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and node.value in STAGES:
            names.add(f"eopipe.stages.{node.value}")
        elif isinstance(node, ast.Constant) and node.value in ENTRIES:
            names.add(ENTRIES[node.value].partition(":")[0])
    return names


def distances(files: list[str]) -> dict[str, int]:
    """Each test file that a change reaches, with the number of imports between."""
    graph = grimp.build_graph("eopipe", cache_dir=None)
    importers = {name: graph.find_modules_that_directly_import(name) for name in graph.modules}
    tests = {str(path.relative_to(ROOT)): imports_of(path) for path in sorted((ROOT / "tests").rglob("*.py"))}
    by_stem = {Path(path).stem: path for path in tests}
    for path, names in tests.items():
        for name in names:
            other = name if name in importers else by_stem.get(name.partition(".")[0])
            if other and other != path:
                importers.setdefault(other, set()).add(path)
    starts = [name for file in files if (name := _node(file)) in importers or file in tests]
    steps = dict.fromkeys(starts, 0)
    queue = deque(starts)
    while queue:
        name = queue.popleft()
        for importer in importers.get(name, ()):
            if importer not in steps:
                steps[importer] = steps[name] + 1
                queue.append(importer)
    if any(file.startswith(DERIVED) for file in files):
        steps |= {path: 1 for path in tests if path.startswith("tests/contract/")}
    return {path: step for path, step in steps.items() if Path(path).name.startswith("test_")}


def _node(file: str) -> str:
    module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    return module if file.startswith("eopipe/") else file


def nearest(steps: dict[str, int]) -> list[str]:
    """As many of the test files as fit into the time, the nearest first."""
    durations = ROOT / "tests/durations.json"
    seconds = json.loads(durations.read_text())["files"] if durations.is_file() else {}
    chosen: list[str] = []
    total = 0.0
    for path in sorted(steps, key=lambda path: (steps[path], seconds.get(path, UNKNOWN_S))):
        total += seconds.get(path, UNKNOWN_S)
        if total <= TESTS_S or not chosen:
            chosen.append(path)
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks beside the tests; returns 1 where any of them fails."""
    parser = argparse.ArgumentParser(prog="python -m dev.quick", description=(__doc__ or "").partition("\n\n")[0])
    help_of_package = "the tests nearest to the whole package, and no format, types and imports: for other versions"
    parser.add_argument("--package", action="store_true", help=help_of_package)
    whole_package = parser.parse_args(argv).package
    files = _git("ls-files", "eopipe") if whole_package else changed()
    steps = distances(files)
    chosen = nearest(steps)
    print(f"{len(files)} files reach {len(steps)} test files, of which the nearest {len(chosen)} run", flush=True)
    with ThreadPoolExecutor(1) as pool:
        commands = () if whole_package else CHECKS
        checks = pool.submit(lambda: [subprocess.run(line, cwd=ROOT, check=False).returncode for line in commands])
        codes = []
        if chosen:
            line = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", *chosen]
            # 5: all of them are slow.
            codes.append(subprocess.run(line, cwd=ROOT, check=False).returncode not in (0, 5))
        return int(any(codes) or any(checks.result()))


if __name__ == "__main__":
    sys.exit(main())
