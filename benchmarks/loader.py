"""How many training chips a second come from disk, shuffled: eopipe beside its peers and beside memory itself.

    python benchmarks/loader.py [CACHE] [--edge 5376] [--rounds 3] [--workers 0 1 2] [--only eopipe litdata]

Builds in CACHE (once) a scene of 10 bands of uint16 that compresses as real ones do, with labels and a valid mask:
as a tile store, as deflate COGs, and as the chunks or shards that a peer wants. A contestant runs each time in a
process of its own, round by round, so that a change of the machine's load meets all of them. It gives batches of 32
chips of 256 x 256 x 10 as uint16 for `--epochs` epochs; the first, with the start of its workers and a colder
cache, is told apart, the figure is that of the others. `aligned` chips lie on the chunks of the store, `random` ones
anywhere. eopipe and memory give label and valid mask too, the peers the image alone. Tables are Markdown.

The extra `bench` installs some peers; litdata and torchgeo are installed by hand (`pip install --no-deps`), since
they ask for builds of other packages. A peer that is not there is told and left out.

eopipe's budget holds its live blocks and not the scene, unless the scene is small. `memory` is a DataLoader over
arrays in memory: the limit of what reads nothing. `first epoch` and `CPU ms a chip` (of all processes, after the first
epoch: what a busy machine disturbs least) are those of the fewest workers asked for.
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

# GDAL would keep the whole scene decoded, which it could not do with more of them.
LITTLE = {"GDAL_CACHEMAX": "64"}
# What each is compared with.
OURS = {"memory_ready": "eopipe_ready"}


def measure(name: str, task: Task) -> None:
    """Run one contestant in this process; print chips a second of the first epoch and of the others, and memory."""
    rates, costs, begin, before = [], [], time.perf_counter(), spent(os.getpid())
    for count in CONTESTANTS[name](task):
        now, cpu = time.perf_counter(), spent(os.getpid())
        rates.append(count / (now - begin))
        costs.append(1e3 * (cpu - before) / count)
        begin, before = now, cpu
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found = {"first": rates[0], "later": statistics.median(rates[1:]), "cpu": statistics.median(costs[1:])}
    print(json.dumps(found | {"peak": int(own.split()[1]) / 1024, "worker": children / 1024 if task.workers else 0.0}))


def spent(process: int) -> float:
    """Seconds of CPU that a process and those that it started and that still live have taken."""
    folder = Path("/proc") / str(process)
    times = folder.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]
    children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(map(spent, map(int, children)))


Key = tuple[str, str, int]


def compare(keys: list[Key], words: list[str], rounds: int) -> dict[Key, list[dict[str, float]]]:
    """Run all, round by round, each in a process of its own; what is not installed is told."""
    found: dict[Key, list[dict[str, float]]] = {key: [] for key in keys}
    for turn in range(rounds):
        for key in keys:
            name, kind, workers = key
            line = [sys.executable, "-W", "ignore", __file__, *words, "--run", name]
            line += ["--kind", kind, "--workers", str(workers)]
            ended = subprocess.run(line, capture_output=True, text=True, check=False, env=os.environ | LITTLE)
            if ended.returncode:
                last = (ended.stderr.strip().splitlines() or ["killed"])[-1]
                told = "not installed" if "ModuleNotFoundError" in last else f"failed with {ended.returncode}"
                print(f"{key}: {told}: {last}", file=sys.stderr)
                continue
            found[key].append(json.loads(ended.stdout.strip().splitlines()[-1]))
            print(turn, key, found[key][-1], file=sys.stderr)
    return found


def table(found: dict[Key, list[dict[str, float]]], kind: str, names: list[str], workers: list[int]) -> str:
    """Median chips a second with each number of workers; then eopipe's best against the peer's, round by round."""
    head = [kind, *(f"{n} workers" for n in workers), "first epoch", "CPU ms a chip", "eopipe x", "MiB", "MiB a worker"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name in names:
        rows = [found.get((name, kind, n), []) for n in workers]
        if not any(rows):
            lines.append([name] + ["-"] * (len(head) - 1))
            continue
        each = [f"{statistics.median(r['later'] for r in row):.0f}" if row else "-" for row in rows]
        most = max(rows, key=len)
        first, cost = (statistics.median(r[what] for r in most) for what in ("first", "cpu"))
        peaks = [f"{max(r[what] for row in rows for r in row):.0f}" for what in ("peak", "worker")]
        lines.append([name, *each, f"{first:.0f}", f"{cost:.2f}", _ratio(found, kind, name, workers), *peaks])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratio(found: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> str:
    """Median over rounds of the best rate of eopipe over the best of another, whatever the number of workers."""
    mine, theirs = (_best(found, kind, who, workers) for who in (OURS.get(name, "eopipe"), name))
    ratios = [a / b for a, b in zip(mine, theirs, strict=False)]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def _best(found: dict[Key, list[dict[str, float]]], kind: str, name: str, workers: list[int]) -> list[float]:
    rows = [[r["later"] for r in found.get((name, kind, n), [])] for n in workers]
    return [max(rates) for rates in zip(*[row for row in rows if row], strict=False)]


def main() -> None:
    """Parse the words and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, nargs="?", default=Path(tempfile.gettempdir()) / "eopipe-loader")
    parser.add_argument("--edge", type=int, default=5376, help="edge of the scene in pixels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kind", nargs="+", default=["aligned", "random"], choices=("aligned", "random"))
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--seconds", type=float, default=60, help="most seconds of an epoch of a peer")
    parser.add_argument("--cold", action="store_true", help="the first epoch reads from disk")
    parser.add_argument("--run", choices=CONTESTANTS, help=argparse.SUPPRESS)
    told = parser.parse_args()
    folder = told.cache / f"scene-{told.edge}"
    if told.run:
        if told.cold:
            evict(folder)
        corners = corners_of(told.edge, told.kind[0])
        measure(told.run, Task(folder, corners, told.workers[0], told.epochs, told.seconds))
        return
    build(folder, told.edge)
    keys = [
        (name, kind, workers)
        for kind in told.kind
        for name in told.only
        for workers in told.workers
        if not (kind == "random" and name in ALIGNED_ONLY)
    ]
    words = [str(told.cache), "--edge", str(told.edge), "--epochs", str(told.epochs), "--seconds", str(told.seconds)]
    words += ["--cold"] if told.cold else []
    found = compare(keys, words, told.rounds)
    for kind in told.kind:
        print(table(found, kind, told.only, told.workers) + "\n", flush=True)


if __name__ == "__main__":
    main()
