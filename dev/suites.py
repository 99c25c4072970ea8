"""`make test`, `make test-rest`, `make test-all`: the suites on two lanes, each with its time.

A test marked `exhaustive` belongs to the rest, every other one to `make test`. With --record the duration of each test
is written to tests/durations.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
SELECTIONS = {"test": "not exhaustive", "rest": "exhaustive", "all": ""}
LANES = 2
NOTHING_SELECTED = 5
# Steps back for the cluster, whose time limits are real.
NICENESS = 10
# A Slurm of its own in a network of its own, where this machine allows that; else one after the other.
APART = TESTS / "cluster/apart"
# Tests of one launch of every training, and of its runs.
WORLDS = ("distributed/test_option_pairs.py", "distributed/test_strategies.py", "distributed/test_world_sizes.py")


@dataclass(frozen=True)
class Suite:
    """Test files that share fixtures, started as one process; `slurm` is the part of those that need a cluster."""

    name: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    mark: str = ""
    slurm: bool = False

    def command(self, selection: str, apart: bool) -> list[str]:
        """Its command line for a selection of marks."""
        marks = " and ".join(f"({mark})" for mark in (self.mark, selection) if mark)
        ignored = [f"--ignore=tests/{path}" for path in self.without]
        pytest = [sys.executable, "-m", "pytest", "--durations=8", *(["-m", marks] if marks else []), *ignored]
        command = [*pytest, *(f"tests/{path}" for path in self.paths)]
        return [str(APART), *command] if self.slurm and apart else ["nice", "-n", str(NICENESS), *command]


# These wait most of their time, so they have no lane; the engines of CWL come after the cluster.
CLUSTER = (
    Suite("cluster alone", ("cluster",), mark="alone", slurm=True),
    Suite("cluster", ("cluster",), mark="not alone", slurm=True),
    Suite("engines", ("engines_cwl",), slurm=True),
)
# The longest first.
SUITES = (
    Suite("workflow", ("workflow",)),
    Suite("distributed", ("distributed",), without=WORLDS),
    Suite("unit", ("unit",)),
    Suite("chaos", ("chaos",)),
    Suite("worlds", WORLDS),
    Suite("contract", ("contract",)),
    Suite("servers", ("servers",)),
)


@dataclass(frozen=True)
class Outcome:
    """How a suite ended."""

    name: str
    code: int
    seconds: float
    last_line: str


def run(name: str, command: list[str]) -> Outcome:
    """Run the command of a suite and print its output in one piece."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False).returncode
        output.seek(0)
        text = output.read()
    print(f"== {name}\n{text}", flush=True)
    code = 0 if code == NOTHING_SELECTED else code
    return Outcome(name, code, time.monotonic() - start, text.strip().rpartition("\n")[2].strip("= "))


def run_cluster(selection: str, apart: bool) -> list[Outcome]:
    """The suites that wait: two at the same time where each can have a Slurm of its own."""
    with ThreadPoolExecutor(LANES if apart else 1) as pool:
        return list(pool.map(lambda suite: run(suite.name, suite.command(selection, apart)), CLUSTER))


def run_all(selection: str) -> list[Outcome]:
    """All suites on two lanes; that of the cluster beside them."""
    apart = subprocess.run([APART, "true"], capture_output=True, check=False).returncode == 0
    with ThreadPoolExecutor(1) as waiting, ThreadPoolExecutor(LANES) as pool:
        cluster = waiting.submit(run_cluster, selection, apart)
        if not apart:
            cluster.result()
        others = [pool.submit(run, suite.name, suite.command(selection, apart)) for suite in SUITES]
        if selection != SELECTIONS["rest"]:
            others.append(pool.submit(run, "check", ["make", "--no-print-directory", "check"]))
        return [*cluster.result(), *(outcome.result() for outcome in others)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a selection of the tests; returns 1 where a suite failed."""
    parser = argparse.ArgumentParser(prog="python -m dev.suites", description="Run the test suites on two lanes.")
    parser.add_argument("selection", choices=SELECTIONS)
    parser.add_argument("--record", action="store_true", help="write the durations to tests/durations.json")
    arguments = parser.parse_args(argv)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.record:
            os.environ["EOPIPE_DURATIONS"] = folder
        outcomes = run_all(SELECTIONS[arguments.selection])
        if arguments.record:
            subprocess.run([sys.executable, TESTS / "durations.py"], check=True)
    for outcome in outcomes:
        print(
            f"{outcome.name:14} {outcome.seconds:6.0f} s  {'failed' if outcome.code else 'passed'}  {outcome.last_line}"
        )
    print(f"{'all':14} {time.monotonic() - start:6.0f} s")
    return int(any(outcome.code for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
