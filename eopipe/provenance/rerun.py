"""`eopipe rerun`: make a crate's run again and compare every digest."""

import argparse
import os
from pathlib import Path

from eopipe.errors import IntegrityError
from eopipe.provenance.checking import crate_damages
from eopipe.provenance.crate_reader import read_crate
from eopipe.provenance.origin import check_code, drift, outside
from eopipe.provenance.rerun_jobs import Again
from eopipe.publish import told, verify


def rerun(words: list[str]) -> int:
    """Make a crate's run again in a new folder and say whether every digest is the same.

    Raises IntegrityError where a digest differs or the crate is damaged.
    """
    given = _parser().parse_args(words)
    crate = read_crate(given.crate)
    verify(crate.folder)
    if wrong := crate_damages(crate.folder):
        raise IntegrityError(told(crate.folder, wrong))
    check_code(crate, other=given.other_code)
    here = crate.folder.resolve()
    again = Again(crate, given.to or here.with_name(f"{here.name}-again"))
    again.have |= outside(crate, given.data, [need for job in again.jobs for need in job.record.inputs])
    again.open()
    for line in drift(crate):
        print(line)
    again.run(max(1, given.cores))
    return again.close()


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="eopipe rerun",
        description="Make a crate's run again in a new folder, with the frozen scenes and settings that the crate "
        "tells, and compare every digest. The crate decides what is downloaded and computed.",
    )
    made.add_argument("crate", type=Path, help="folder that eopipe crate made")
    made.add_argument("--to", type=Path, help="new folder of what is made again; CRATE-again if not given")
    made.add_argument(
        "--data", type=Path, default=Path(), help="folder with what the crate only names: labels, catalogs [.]"
    )
    made.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="jobs at a time [all cores]")
    made.add_argument("--other-code", action="store_true", help="compare another version of eopipe with the crate's")
    return made
