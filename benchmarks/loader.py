"""Throughput of shuffled training chips from disk: eopipe compared with its peers and with arrays in memory.

    python benchmarks/loader.py [CACHE] [--edge 5376] [--rounds 3] [--workers 0 1 2] [--only eopipe litdata]

Builds in CACHE (once) a scene of 10 bands of uint16 that compresses as real ones do, with labels and a valid mask:
as a tile store, as deflate COGs, and as the chunks or shards that a peer needs. A contestant runs each time in a
process of its own, round by round, so that a change of the machine's load affects all of them. It yields batches of 32
chips of 256 x 256 x 10 as uint16 for `--epochs` epochs; the first, with the start of its workers and a colder
cache, is reported separately; the figure is for the others. `aligned` chips are on the chunks of the store,
`random` ones anywhere. eopipe and memory yield label and valid mask too, the peers the image alone. Tables are
Markdown.

The extra `bench` installs some peers; litdata and torchgeo are installed by hand (`pip install --no-deps`), since
they require builds of other packages. A peer that is not installed is reported and skipped.

eopipe's cache budget covers its live blocks and not the scene, unless the scene is small. `memory` is a DataLoader
over arrays in memory: the upper limit without reading. `first epoch` and `CPU ms per chip` (of all processes, after the
first epoch: what other load affects least) come from the run with the fewest workers.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loader_peers import ALIGNED_ONLY, CONTESTANTS
from loader_scene import Task, build, corners_of, evict

# Otherwise GDAL would cache the whole decoded scene, which is not possible with many scenes.
GDAL_SETTINGS = {"GDAL_CACHEMAX": "64"}
# The contestant of eopipe with which a peer is compared, if not `eopipe`.
EOPIPE_CONTESTANT = {"memory_ready": "eopipe_ready"}


def measure(name: str, task: Task) -> None:
    """Run one contestant in this process; print chips a second of the first epoch and of the others, and memory."""
    rates, costs, start, cpu_before = [], [], time.perf_counter(), cpu_seconds(os.getpid())
    for count in CONTESTANTS[name](task):
        time_now, cpu = time.perf_counter(), cpu_seconds(os.getpid())
        rates.append(count / (time_now - start))
        costs.append(1e3 * (cpu - cpu_before) / count)
        start, cpu_before = time_now, cpu
    peak_line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    record = {"first": rates[0], "later": statistics.median(rates[1:]), "cpu": statistics.median(costs[1:])}
    record |= {"peak": int(peak_line.split()[1]) / 1024, "worker": children / 1024 if task.workers else 0.0}
    print(json.dumps(record))


def cpu_seconds(process: int) -> float:
    """CPU seconds of a process and its living descendants."""
    folder = Path("/proc") / str(process)
    times = folder.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]
    children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(map(cpu_seconds, map(int, children)))


Key = tuple[str, str, int]


def compare(keys: list[Key], arguments: list[str], rounds: int) -> dict[Key, list[dict[str, float]]]:
    """Run all, round by round, each in a process of its own; report what is not installed."""
    results: dict[Key, list[dict[str, float]]] = {key: [] for key in keys}
    for round_number in range(rounds):
        for key in keys:
            name, kind, workers = key
            command = [sys.executable, "-W", "ignore", __file__, *arguments, "--run", name]
            command += ["--kind", kind, "--workers", str(workers)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | GDAL_SETTINGS)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                outcome = "not installed" if "ModuleNotFoundError" in last else f"failed with {ended.returncode}"
                print(f"{key}: {outcome}: {last}", file=sys.stderr)
                continue
            results[key].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(round_number, key, results[key][-1], file=sys.stderr)
    return results


def table(results: dict[Key, list[dict[str, float]]], kind: str, names: list[str], workers: list[int]) -> str:
    """Median chips a second with each number of workers; then eopipe's best against the peer's, round by round."""
    header = [kind, *(f"{n} workers" for n in workers), "first epoch"]
    header += ["CPU ms per chip", "eopipe x", "MiB", "MiB per worker"]
    lines = [header, ["---"] + ["---:"] * (len(header) - 1)]
    for name in names:
        rows = [results.get((name, kind, n), []) for n in workers]
        if not any(rows):
            lines.append([name] + ["-"] * (len(header) - 1))
            continue
        each = [f"{statistics.median(r['later'] for r in row):.0f}" if row else "-" for row in rows]
        longest = max(rows, key=len)
        first, cost = (statistics.median(r[field] for r in longest) for field in ("first", "cpu"))
        peaks = [f"{max(r[field] for row in rows for r in row):.0f}" for field in ("peak", "worker")]
        lines.append([name, *each, f"{first:.0f}", f"{cost:.2f}", _ratio(results, kind, name, workers), *peaks])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio(results: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> str:
    """Median over rounds of the best rate of eopipe over the best of another, whatever the number of workers."""
    contestants = EOPIPE_CONTESTANT.get(name, "eopipe"), name
    eopipe_rates, peer_rates = (_best(results, kind, contestant, workers) for contestant in contestants)
    ratios = [a / b for a, b in zip(eopipe_rates, peer_rates, strict=False)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def _best(results: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> list[float]:
    rows = [[r["later"] for r in results.get((name, kind, n), [])] for n in workers]
    return [max(rates) for rates in zip(*[row for row in rows if row], strict=False)]


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-loader")
    parser.add_argument("--edge", type=int, default=5376, help="edge of the scene in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kind", nargs="+", default=["aligned", "random"], choices=("aligned", "random"))
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--seconds", type=float, default=60, help="maximum seconds of an epoch of a peer")
    parser.add_argument("--cold", action="store_true", help="the first epoch reads from disk")
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.cache / f"scene-{options.edge}"
    if options.run:
        if options.cold:
            evict(folder)
        corners = corners_of(options.edge, options.kind[0])
        measure(options.run, Task(folder, corners, options.workers[0], options.epochs, options.seconds))
        return
    build(folder, options.edge)
    keys = [
        (name, kind, workers)
        for kind in options.kind
        for name in options.only
        for workers in options.workers
        if not (kind == "random" and name in ALIGNED_ONLY)
    ]
    arguments = [str(options.cache), "--edge", str(options.edge)]
    arguments += ["--epochs", str(options.epochs), "--seconds", str(options.seconds)]
    arguments += ["--cold"] if options.cold else []
    results = compare(keys, arguments, options.rounds)
    for kind in options.kind:
        print(table(results, kind, options.only, options.workers) + "\n", flush=True)


if __name__ == "__main__":
    main()
