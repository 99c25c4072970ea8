"""`eopipe usage`: what the jobs of a run asked for and used."""

import argparse
from pathlib import Path

from eopipe.clusters.usage_jobs import BENCHMARKS, Job, read_jobs
from eopipe.clusters.usage_scheduler import with_accounts
from eopipe.clusters.usage_table import lines, notes, page, rows_of
from eopipe.publish import publish

# Among the benchmarks, since it tells clocks and machines: it is no payload and in no crate.
PAGE = Path(BENCHMARKS, "usage.html")


def usage(words: list[str]) -> int:
    """Show what the jobs of a run asked for and used."""
    made = argparse.ArgumentParser(prog="eopipe usage", description=usage.__doc__)
    made.add_argument("results", type=Path, nargs="?", default=Path("results"), help="[%(default)s]")
    results = made.parse_args(words).results
    jobs, accounts = measured(results)
    rows, said = rows_of(jobs), notes(jobs, accounts)
    print("\n".join(lines(rows, said)))
    with publish(results / PAGE) as draft:
        draft.write_text(page(rows, said), encoding="utf-8")
    print(f"\nwrote {results / PAGE}; `eopipe profile tune` proposes formulas from this")
    return 0


def measured(results: Path) -> tuple[list[Job], str]:
    """The jobs of a run with all that is known of them, and how much the scheduler told."""
    return with_accounts(read_jobs(results))
