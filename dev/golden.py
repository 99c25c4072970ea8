"""`make golden`: the digest of each output of the demo, in tests/golden_demo.json.

A commit that changes a digest names the REVISION that rises (CONTRIBUTING.md). From the training on outputs depend on
the instructions of the processor too, so these digests are compared only where the processor is the recorded one.
"""

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from eopipe.publish import MANIFEST, RECORD, digest

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden_demo.json"
# Not payload: they have times.
WITHOUT = ("logs", "benchmarks", "crate")
# Before the training.
PORTABLE = (
    "items",
    "grid.json",
    "selection.json",
    "scenes",
    "tiles",
    "composites",
    "labels",
    "split.json",
    "statistics.json",
)


def processor() -> str:
    """What the digests of a model depend on beside the code: libraries choose kernels by instructions and model."""
    file = Path("/proc/cpuinfo")
    lines = (line.partition(":") for line in (file.read_text().splitlines() if file.is_file() else ()))
    known = {key.strip(): value.strip() for key, _, value in lines}
    model = [known[key] for key in ("vendor_id", "cpu family", "model") if key in known]
    return " ".join([platform.machine(), torch.backends.cpu.get_cpu_capability(), *model])


def digests(results: Path) -> dict[str, str]:
    """The sha256 of each file of a run, and of the manifest of each published folder."""
    return {path.relative_to(results).as_posix(): digest(path) for path in sorted(_outputs(results))}


def _outputs(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in WITHOUT or path.name.endswith(RECORD) or path.name.startswith("."):
            continue
        if path.is_file() or (path / MANIFEST).is_file():
            yield path
        else:
            yield from _outputs(path)


def is_portable(name: str) -> bool:
    """Whether an output is the same on each processor."""
    return name.partition("/")[0] in PORTABLE


def main() -> int:
    """Write the digests of the results of this checkout's demo."""
    table = {"processor": processor(), "digests": digests(ROOT / "results")}
    GOLDEN.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
