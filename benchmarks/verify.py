"""Throughput of `eopipe verify` in MB/s per core, compared with hashlib and sha256sum on the same files.

The runs are interleaved, so that other load slows all of them; prints the medians.
Run: python benchmarks/verify.py [--gigabytes 1] [--files 64] [--rounds 5] [--folder DIR]
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from eopipe.publish import files, publish

HASHLIB = (
    "import hashlib, sys\n"
    "for name in sys.argv[1:]:\n"
    "    with open(name, 'rb') as file:\n"
    "        hashlib.file_digest(file, 'sha256').hexdigest()\n"
)


def main() -> None:
    """Measure and print a table in Markdown."""
    options = _arguments()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = Path(folder, "store")
        _fill(store, round(options.gigabytes * 1e9 / options.files), options.files)
        commands = _commands(store)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        # The first round loads the files into the page cache; else the disk would be measured.
        for round_number in range(options.rounds + 1):
            for name, command in commands.items():
                seconds = _run(command)
                if round_number:
                    times[name].append(seconds)
    print(_table(times, options))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="folder for the temporary files")
    return parser.parse_args()


def _fill(store: Path, length: int, count: int) -> None:
    """Publish a folder of random files, as a stage does."""
    random = np.random.default_rng(0)
    with publish(store, folder=True) as draft:
        for number in range(count):
            (draft / f"{number:04}.bin").write_bytes(random.bytes(length))


def _commands(store: Path) -> dict[str, list[str]]:
    """Each way to read all files; all but the last use one core."""
    names, cores = [str(path) for path in files(store)], len(os.sched_getaffinity(0))
    verify = [sys.executable, "-m", "eopipe", "verify", str(store)]
    return {
        "`eopipe verify --threads 1`": [*verify, "--threads", "1"],
        "`hashlib` in Python": [sys.executable, "-c", HASHLIB, *names],
        "`sha256sum`": ["sha256sum", *names],
        f"`eopipe verify --threads {cores}`": [*verify, "--threads", str(cores)],
    }


def _run(command: list[str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of a command, including its start."""
    start, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, used


def _table(times: dict[str, list[tuple[float, float]]], options: argparse.Namespace) -> str:
    size = options.gigabytes * 1e3
    rows = [
        f"`{shlex.join(['python', *sys.argv])}`: {size:.0f} MB of random bytes in {options.files} files, in memory; "
        f"median of {options.rounds} interleaved runs, start of the process included",
        "",
        "| command | s | MB/s | MB per second of processor time | slowest to fastest MB/s |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, runs in times.items():
        wall, used = (statistics.median(column) for column in zip(*runs, strict=True))
        rates = sorted(size / seconds for seconds, _ in runs)
        rows.append(
            f"| {name} | {wall:.2f} | {size / wall:.0f} | {size / used:.0f} | {rates[0]:.0f} to {rates[-1]:.0f} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
