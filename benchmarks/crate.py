"""Time, memory and size of the crate of a run of many scenes: `python benchmarks/crate.py [SCENES]`.

The records and items are synthetic (tests/synthetic_run.py); the crate is built as the stage builds it.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from synthetic_run import synthetic_run


def main(scenes: int) -> None:
    """Build the crate and print its cost."""
    with tempfile.TemporaryDirectory() as temporary:
        run = synthetic_run(Path(temporary, "run"), scenes)
        start = time.monotonic()
        crate = run.crate(Path(temporary, "crate"))
        seconds = time.monotonic() - start
        metadata = (crate / "ro-crate-metadata.json").stat().st_size
        total = sum(path.stat().st_size for path in crate.rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{scenes} scenes, {len(run.records)} jobs: {seconds:.1f} s, {metadata / 1e6:.1f} MB of metadata, "
        f"{total / 1e6:.1f} MB in all, {peak >> 10} MB of memory"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
