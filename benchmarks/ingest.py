"""Seconds to resample a Sentinel-2-like scene to a grid, and to write tiles: eopipe compared with its peers.

    python benchmarks/ingest.py [CACHE] [--quarter] [--rounds 3] [--how bilinear] [--only eopipe odc]

Builds a scene in CACHE (once): 4 bands at 10 m, 6 at 20 m and SCL at 20 m, spatially autocorrelated like real ones, as
deflate COGs. Then every contestant runs in its own process, one after the other, round by round, so that a change of
the machine's load affects all of them. All resample to 10 m by `--how` (SCL: nearest). Times are without imports; peak
memory is measured for the whole process. Prints Markdown.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ingest_peers import CONTESTANTS, IMPORTS, Job
from ingest_scene import AWAY, EDGE, HOME, build, grid_of


def measure(name: str, folder: Path, grid: Any, resampling: str) -> None:
    """Run one contestant in this process; print its seconds and its peak memory in MiB."""
    import importlib

    for module in IMPORTS.get(name.split("_", maxsplit=1)[0], ("rasterio",)):
        importlib.import_module(module)
    out = folder / "out" / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    begin = time.perf_counter()
    CONTESTANTS[name](Job(folder, grid, out, resampling))
    seconds = time.perf_counter() - begin
    shutil.rmtree(out)
    # The maximum of getrusage may come from the parent process before the fork.
    high_water_mark = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    peak = max(int(high_water_mark.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
    print(json.dumps({"seconds": seconds, "peak": peak}))


def compare(names: list[str], folder: Path, options: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run the contestants round by round, each in its own process."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for round_number in range(rounds):
        for name in names:
            command = [sys.executable, __file__, str(folder), *options, "--run", name]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                print(f"{name} failed with {ended.returncode}: {last}", file=sys.stderr)
                continue
            results[name].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(round_number, name, results[name][-1], file=sys.stderr)
    return {name: rows for name, rows in results.items() if rows}


def table(title: str, results: dict[str, list[dict[str, float]]]) -> str:
    """Median times, and the ratio to eopipe, as median of the ratios of the rounds."""
    lines = [f"| {title} | s | range | x eopipe | x eopipe_store | peak MiB |", "|---|---|---|---|---|---|"]
    for name, rows in results.items():
        times = [row["seconds"] for row in rows]
        ratios = [_ratio(times, results.get(rival)) for rival in ("eopipe", "eopipe_store")]
        span = f"{min(times):.2f}-{max(times):.2f}"
        peak = max(row["peak"] for row in rows)
        lines.append(f"| {name} | {statistics.median(times):.2f} | {span} | {' | '.join(ratios)} | {peak:.0f} |")
    return "\n".join(lines)


def _ratio(times: list[float], rival: list[dict[str, float]] | None) -> str:
    if not rival:
        return "-"
    return f"{statistics.median(a / b['seconds'] for a, b in zip(times, rival, strict=False)):.2f}"


def main() -> None:
    """Parse the arguments and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-ingest")
    parser.add_argument("--quarter", action="store_true", help="5490 x 5490 pixels instead of 10980 x 10980")
    parser.add_argument("--block", type=int, default=512, help="edge of a block of the files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--crs", nargs="+", default=[HOME, AWAY], help="CRS of the grids")
    parser.add_argument("--how", choices=("nearest", "bilinear"), default="bilinear", help="resampling of the bands")
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    edge = EDGE // 2 if arguments.quarter else EDGE
    folder = arguments.cache if arguments.run else arguments.cache / f"s2-{edge}-{arguments.block}"
    if arguments.run:
        measure(arguments.run, folder, grid_of(edge, arguments.crs[0]), arguments.how)
        return
    build(folder, edge, arguments.block)
    for crs in arguments.crs:
        options = ["--crs", crs, "--how", arguments.how, *(["--quarter"] if arguments.quarter else [])]
        print(
            table(
                f"{edge} x {edge}, {crs}, {arguments.how}", compare(arguments.only, folder, options, arguments.rounds)
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
