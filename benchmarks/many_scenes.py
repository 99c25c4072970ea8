"""Many small scenes through a real Slurm of four nodes: `python benchmarks/many_scenes.py FOLDER [SCENES]`, as root.

Prints submissions, calls of the controller and its time, duration, and files. The folder is created, and stays.
"""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE / "tests/cluster"), str(HERE / "tests")]

import load  # noqa: E402
import many_scenes  # noqa: E402
from projects import environment  # noqa: E402

from slurm import Cluster  # noqa: E402


def main(folder: Path, scenes: int) -> None:
    """Fetch the scenes here, then preprocess them and their labels as jobs."""
    many_scenes.project(folder, scenes)
    (folder / "slurm").symlink_to(HERE / "profiles/slurm")
    cluster = Cluster()
    cluster.start()
    try:
        run(folder, "fetched", "fetched")
        load.reset_counters()
        targets = [*many_scenes.tiles(folder), "results/labels/all.zarr/manifest.json"]
        run(folder, "preprocess", *targets)
        for kind, count in load.calls().items():
            print(f"{count:6} {kind}")
        print(f"{load.busy_ms():6.0f} ms of the controller")
    finally:
        cluster.stop()
    for place, count in sorted(load.files(folder).items()):
        if not place.startswith("catalog"):
            print(f"{count:6} files in {place or '.'}")


def run(folder: Path, name: str, *targets: str) -> None:
    """Run Snakemake and print its duration."""
    start = time.monotonic()
    with (folder / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--", *targets]
        result = subprocess.run(command, cwd=folder, stdout=log, stderr=log, check=False, env=environment())
    if result.returncode:
        sys.exit(f"{name} failed; {log.name} says why")
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 200)
