"""`make test`, `make test-all`: the test files in groups, one process each, on two lanes, each group with its time.

A test marked `exhaustive` (kills, engines, journeys, parameters of worlds) is left out by `make test`, and belongs to
a slice (tests/slices.json). `make test SLICE=0` adds that slice, and the exhaustive tests nearest to what changed since
the last run of CI. With --record the duration of each test is written to tests/durations.json, with
--record-missing only of tests without one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dev import quick
from dev.imports import imports
from tests import warm
from tests.slices import SLICES

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
LANES = 2
MAKE = shutil.which("make") or "make"
TEST_FAILED, NOTHING_SELECTED = 1, 5
# Steps back for the cluster, whose time limits are real.
NICENESS = 10
# Files of a suite are a group as long as they take less than this together.
GROUP_S = 150.0
# For the exhaustive tests near a change, on both lanes.
NEAR_S, NEAR_STEPS = 60.0, 2
# A Slurm of its own in a network of its own, where this machine allows that; else one after the other.
APART = TESTS / "cluster/apart"
# One process for the tests of one launch of every training, of one run of an example, and of one STAC API.
TOGETHER = {
    "composites": ("workflow/test_composite_run.py", "workflow/test_nothing_secret.py"),
    "examples": ("workflow/test_competency_questions.py", "workflow/test_tasks_run.py"),
    "worlds": ("distributed/test_option_pairs.py", "distributed/test_strategies.py", "distributed/test_world_sizes.py"),
    "servers": tuple(f"servers/{path.name}" for path in sorted((TESTS / "servers").glob("test_*.py"))),
}
# These wait most of their time, so they have no lane.
WAITING = ("cluster", "engines_cwl")
# Where a server or scheduler that is late fails a test: it is tried again, unless equal bytes are its subject.
TRIED_AGAIN = (*WAITING, "servers")


@dataclass(frozen=True)
class Group:
    """Test files that one process runs, with the recorded seconds of those tests that a selection has."""

    name: str
    paths: tuple[str, ...]
    seconds: float = 0.0
    mark: str = ""
    # What of the Makefile it needs where one of its tests is selected.
    target: str = ""

    @property
    def waits(self) -> bool:
        """Whether it needs a cluster, or a computer for itself."""
        return self.paths[0].partition("/")[0] in WAITING

    @property
    def may_be_tried_again(self) -> bool:
        """Whether a test that fails is run a second time."""
        return self.paths[0].partition("/")[0] in TRIED_AGAIN

    def command(self, selection: Sequence[str], cache: Path, marks: Sequence[str] = ()) -> list[str]:
        """Its command line for a selection of the exhaustive tests."""
        expression = " and ".join(filter(None, [self.mark, *marks]))
        pytest = [sys.executable, "-m", "pytest", "--durations=8", "-o", f"cache_dir={cache}", *selection]
        return [*pytest, *(["-m", expression] if expression else []), *(f"tests/{path}" for path in self.paths)]


def groups(seconds: dict[str, float]) -> list[Group]:
    """All test files, the longest group first."""
    together = [Group(name, paths, _sum(seconds, paths)) for name, paths in TOGETHER.items()]
    together_paths = {path for group in together for path in group.paths}
    rows = [Group("cluster alone", ("cluster",), mark="alone"), Group("cluster", ("cluster",), mark="not alone")]
    rows.append(Group("engines", ("engines_cwl",), target=".venv/engines"))
    for folder in sorted({path.parent.name for path in TESTS.glob("*/test_*.py")} - set(WAITING)):
        names = [f"{folder}/{path.name}" for path in sorted((TESTS / folder).glob("test_*.py"))]
        batches: list[list[str]] = []
        for name in names:
            if name in together_paths:
                continue
            if not batches or _sum(seconds, (*batches[-1], name)) > GROUP_S:
                batches.append([])
            batches[-1].append(name)
        for number, batch in enumerate(batches, 1):
            together.append(
                Group(f"{folder} {number}" if len(batches) > 1 else folder, tuple(batch), _sum(seconds, batch))
            )
    return rows + sorted(together, key=lambda group: -group.seconds)


def _sum(seconds: dict[str, float], paths: Sequence[str]) -> float:
    return sum(seconds.get(f"tests/{path}", 0.0) for path in paths)


def file_seconds(share: float) -> dict[str, float]:
    """The recorded seconds of each test file, with a share of the seconds of its exhaustive tests and fixtures."""
    table = quick.durations()
    seconds: dict[str, float] = {}
    for name, (_, wall, _, exhaustive) in table.tests.items():
        path = name.partition("::")[0]
        seconds[path] = seconds.get(path, 0.0) + wall * (1 - exhaustive * (1 - share))
    for name, (wall, _) in table.fixtures.items():
        path = name.partition("::")[0]
        if path in seconds:
            seconds[path] += wall * share
    return seconds


@dataclass(frozen=True)
class Outcome:
    """How a group ended."""

    name: str
    code: int
    seconds: float
    # CPU seconds of all processes of a test but servers.
    cpu_s: float
    last_line: str
    is_flaky: bool = False


def run(group: Group, selection: Sequence[str], prefix: Sequence[str] = ()) -> Outcome:
    """Run a group and print its output in one piece; what failed once and then passes is flaky."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if group.target and _run([*group.command(selection, cache), "--collect-only"], group)[0] != NOTHING_SELECTED:
            code, text, cpu_s = _run([MAKE, group.target], group)
            if code:
                return Outcome(group.name, code, time.monotonic() - start, cpu_s, _last_line(text))
        code, text, cpu_s = _run([*prefix, *group.command(selection, cache)], group)
        print(f"== {group.name}\n{text}", flush=True)
        is_flaky = False
        if code == TEST_FAILED and group.may_be_tried_again:
            last_failed = ("--last-failed", "--last-failed-no-failures", "none", *selection)
            again = group.command(last_failed, cache, ("not same_bytes",))
            _, text_again, _ = _run([*prefix, *again], group)
            print(f"== {group.name}, what failed once more\n{text_again}", flush=True)
            # pytest takes a test off this list when it passes.
            is_flaky = not json.loads((cache / "v/cache/lastfailed").read_text() or "{}")
            code = 0 if is_flaky else code
    code = 0 if code == NOTHING_SELECTED else code
    return Outcome(group.name, code, time.monotonic() - start, cpu_s, _last_line(text), is_flaky)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip("= ")


def _run(command: Sequence[str], group: Group | None = None) -> tuple[int, str, float]:
    """Run a command; its exit code, what it printed, and the CPU seconds of it and of all that it waited for."""
    # In a network of its own the cluster needs processes that were started there.
    is_apart = group is not None and group.waits
    environment = {k: v for k, v in os.environ.items() if not (is_apart and k == "EOPIPE_WARM_START")}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, output.read(), usage.ru_utime + usage.ru_stime


def run_waiting(rows: Sequence[Group], selection: Sequence[str], is_apart: bool) -> list[Outcome]:
    """The groups that wait: two at the same time where each can have a Slurm of its own."""
    prefix = [str(APART)] if is_apart else ["nice", "-n", str(NICENESS)]
    with ThreadPoolExecutor(LANES if is_apart else 1) as pool:
        return list(pool.map(lambda group: run(group, selection, prefix), rows))


def run_all(selection: Sequence[str], share: float) -> list[Outcome]:
    """All groups and the linters on two lanes; those that wait beside them."""
    is_apart = subprocess.run([APART, "true"], capture_output=True, check=False).returncode == 0
    rows = groups(file_seconds(share))
    with ThreadPoolExecutor(1) as waiting, ThreadPoolExecutor(LANES) as pool:
        cluster = waiting.submit(run_waiting, [group for group in rows if group.waits], selection, is_apart)
        if not is_apart:
            cluster.result()
        others = [pool.submit(check)]
        others += [pool.submit(run, group, selection) for group in rows if not group.waits]
        return [*cluster.result(), *(outcome.result() for outcome in others)]


def check() -> Outcome:
    """The linters."""
    start = time.monotonic()
    line = [MAKE, "--no-print-directory", "check"]
    code, text, cpu_s = _run(line)
    print(f"== check\n{text}", flush=True)
    return Outcome("check", code, time.monotonic() - start, cpu_s, _last_line(text))


def near_tests() -> list[str]:
    """The exhaustive tests nearest to what changed since `make slice`, as many as fit; prints the rest."""
    commit = quick.git("log", "-1", "--format=%H", '-G^ "runs"', "--", "tests/slices.json")
    files = quick.git("diff", "--name-only", *commit, "HEAD") if commit else []
    table = quick.durations()
    steps = quick.Reach(imports()).distances(files)
    near = [name for name, step in steps.items() if step <= NEAR_STEPS and name in table.tests and table.tests[name][3]]
    chosen = fitting(sorted(near, key=lambda name: (steps[name], table.tests[name][1])), table, NEAR_S * LANES)
    left = [name for name in near if name not in chosen]
    print(f"{len(files)} files changed since the last run of CI: {len(chosen)} exhaustive tests near them run too")
    if left:
        print("not run, though near: " + " ".join(left))
    return chosen


def fitting(names: Sequence[str], table: quick.Durations, seconds: float) -> list[str]:
    """The first of some tests that fit into the seconds with the fixtures of their files; none that wait for a cluster.

    The jobs of a cluster take processor time that no recorded second shows.
    """
    fixtures: dict[str, float] = {}
    for name, (wall, _) in table.fixtures.items():
        path = name.partition("::")[0]
        fixtures[path] = fixtures.get(path, 0.0) + wall
    chosen: list[str] = []
    for name in names:
        path = name.partition("::")[0]
        cost = table.tests[name][1] + fixtures.get(path, 0.0)
        if path.split("/")[1] not in WAITING and cost <= seconds:
            chosen.append(name)
            seconds -= cost
            fixtures[path] = 0.0
    return chosen


def existing_tests() -> list[str]:
    """The names of all tests, without parameters."""
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests"]
    listed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return list(dict.fromkeys(name.partition("[")[0] for name in listed if "::" in name))


def record(folder: Path, names: Sequence[str]) -> None:
    """Merge what the processes of a session measured into tests/durations.json."""
    line = [sys.executable, str(TESTS / "durations.py"), str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(line, input="\n".join(names), text=True, check=True, env=environment)


def record_missing() -> int:
    """Run the tests that have no recorded duration, one after the other, and add them."""
    names, table = existing_tests(), quick.durations().tests
    missing = [name for name in names if name not in table]
    print(f"{len(missing)} tests have no recorded duration", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EOPIPE_DURATIONS"] = folder
        line = [sys.executable, "-m", "pytest", "-q", *missing]
        code = subprocess.run(line, cwd=ROOT, check=False).returncode if missing else 0
        record(Path(folder), names)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run a selection of the tests; returns 1 where a group failed."""
    parser = argparse.ArgumentParser(prog="python -m dev.suites", description="Run the tests on two lanes.")
    parser.add_argument("--exhaustive", choices=("none", "all", *SLICES), default="none", help="which of these tests")
    parser.add_argument("--record", action="store_true", help="write the durations to tests/durations.json")
    parser.add_argument("--record-missing", action="store_true", help="only the tests without a recorded duration")
    arguments = parser.parse_args(argv)
    if arguments.record_missing:
        return record_missing()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        selection = [f"--exhaustive={arguments.exhaustive}"]
        if arguments.exhaustive in SLICES:
            also = Path(folder, "near")
            also.write_text("\n".join(near_tests()))
            selection.append(f"--also={also}")
        runs, measured = Path(folder, "runs"), Path(folder, "durations")
        runs.mkdir()
        measured.mkdir()
        os.environ["EOPIPE_SHARED_RUNS"] = str(runs)
        warm.open_session()
        if arguments.record:
            os.environ["EOPIPE_DURATIONS"] = str(measured)
        share = {"none": 0.0, "all": 1.0}.get(arguments.exhaustive, 1 / len(SLICES))
        outcomes = run_all(selection, share)
        warm.close_session()
        if arguments.record:
            record(measured, existing_tests())
    for outcome in outcomes:
        word = "failed" if outcome.code else "FLAKY" if outcome.is_flaky else "passed"
        print(f"{outcome.name:14} {outcome.seconds:6.0f} s {outcome.cpu_s:6.0f} CPU s  {word}  {outcome.last_line}")
    print(f"{'all':14} {time.monotonic() - start:6.0f} s")
    return int(any(outcome.code for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
