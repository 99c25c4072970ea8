"""`make chaos SEEDS=50`: disturbed runs by hand, one line each, and the sums in the end."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median

from loopback import Loopback

from chaos.driver import Outcome, Reference, disturbed, undisturbed
from chaos.workflows import PROJECTS


def main() -> int:
    """Run the seeds; returns 1 where one of them ended otherwise than undisturbed."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=main.__doc__)
    parser.add_argument("--project", choices=PROJECTS, help="only this one [all by turns]")
    parser.add_argument("--seeds", type=int, default=50, help="number of runs [50]")
    parser.add_argument("--first", type=int, default=1, help="first seed [1]")
    parser.add_argument("--folder", type=Path, help="where projects of runs that differ are kept [a temporary folder]")
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT):
        # Ignored in the background, and then in each run too; a handler is not inherited.
        signal.signal(number, lambda *_: None)
    root = options.folder or Path(tempfile.mkdtemp(prefix="eopipe-chaos-"))
    (root / "served").mkdir(parents=True)
    with Loopback(root / "served") as web:
        outcomes = _outcomes(options, root, web)
    print(summary(outcomes))
    return int(not all(outcome.is_identical for outcome in outcomes))


def _outcomes(options: argparse.Namespace, root: Path, web: Loopback) -> list[Outcome]:
    """Disturb a run by each seed; prints a line for each."""
    projects = [options.project] if options.project else [*PROJECTS]
    references: dict[str, Reference] = {}
    outcomes = []
    for seed in range(options.first, options.first + options.seeds):
        project = projects[(seed - 1) % len(projects)]
        if project not in references:
            references[project] = reference = undisturbed(project, root / f"undisturbed-{project}", web)
            print(
                f"undisturbed {project}: {len(reference.digests)} payload files in {reference.seconds:.0f} s",
                flush=True,
            )
        outcome = disturbed(project, seed, root / f"seed-{seed}", web, references[project])
        outcomes.append(outcome)
        print(json.dumps({"identical": outcome.is_identical} | asdict(outcome)), flush=True)
        if outcome.is_identical:
            shutil.rmtree(root / f"seed-{seed}")
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """The figures of docs/faults.md."""
    hit = [outcome for outcome in outcomes if outcome.disturbances]
    starts = [len(outcome.codes) for outcome in hit]
    lines = [
        f"{sum(outcome.is_identical for outcome in hit)} of {len(hit)} disturbed runs identical",
        f"{sum(len(outcome.disturbances) for outcome in hit)} signals",
        f"starts: median {median(starts or [0])}, most {max(starts, default=0)}",
        f"processes that lived on: {sum(len(outcome.survivors) for outcome in hit)}",
    ]
    return "; ".join(lines)


if __name__ == "__main__":
    sys.exit(main())
