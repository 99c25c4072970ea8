"""One granule through everything, beside what `plan` said: `python benchmarks/granule.py FOLDER [--edge 10980]`.

FOLDER gets a catalog of Sentinel-2-like dates with a mask, labelled polygons, and a project; what is there already is
used again. `eopipe plan` forecasts, then `eopipe run --cores 2` goes from the search to the crate: a median of each
season, a split by polygon, the default model with fewer steps, map, scores, report and catalog. Prints Markdown: CPU
seconds and memory by rule beside what the rules request, bytes and inodes beside the forecast, and how much of the map
is right. A run that was stopped continues; its wall time is the sum of all parts. Bytes at the peak have drafts too.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

from granule_scene import BANDS, CLASSES, write_catalog, write_land, write_polygons

from eopipe.clusters.usage import JobUsage, read_jobs

CONFIG = f"""
search: {{catalog: ../catalog, assets: [{", ".join(BANDS)}, scl]}}
preprocess: {{bands: [{", ".join(BANDS)}], mask: scl}}
composite: {{method: median, stack: season}}
label: {{source: ../labels.gpkg, classes: [{", ".join(CLASSES)}], attribute: class}}
split: {{method: group, by: polygon, chip: 256, buffer: 5}}
train: {{steps: STEPS}}
report: {{title: One granule}}
crate: {{description: A made-up granule with labelled polygons}}
"""
RUN = ("run", "--cores", "2", "--benchmark-extended")
REST, WEIGHTS = "everything else", (".safetensors", ".onnx")
KINDS = {"tiles": "tiles", "composites": "composites", "labels": "labels", "model": "models", "maps": "maps"}
KINDS |= dict.fromkeys(("items", "scenes", "grid.json", "selection.json"), "scenes")
FOLDERS, SAMPLE_S = ("results", "state", ".snakemake"), 5.0


def eopipe(project: Path, log: str, *arguments: str) -> dict[str, float]:
    """Run a command in a project; its seconds, CPU seconds with all that it started, and the most bytes there were."""
    ended, peaks, start = Event(), [0], time.monotonic()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            peaks.append(sum(size for *_, size in files_of(project)))

    with (project / log).open("a") as file:
        watcher = Thread(target=watch)
        watcher.start()
        process = subprocess.Popen([sys.executable, "-m", "eopipe", *arguments], cwd=project, stdout=file, stderr=file)
        _, status, usage = os.wait4(process.pid, 0)
        ended.set()
        watcher.join()
    if status:
        sys.exit(f"eopipe {' '.join(arguments)} failed; {project / log} says why")
    return {
        "seconds": time.monotonic() - start,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss / 1024,
        "peak": max(peaks),
    }


def files_of(project: Path) -> Iterator[tuple[str, Path, int]]:
    """What is in results, state and Snakemake's folder: kind of `plan`, path and bytes, each hard link once."""
    inodes = set[int]()
    for folder in (*(project / "results" / name for name in KINDS), *(project / name for name in FOLDERS)):
        for path in (folder, *folder.rglob("*")) if folder.exists() else ():
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if status.st_ino not in inodes:
                inodes.add(status.st_ino)
                is_record = path.name.endswith(".run.json")
                kind = KINDS.get(path.relative_to(project).parts[1], REST) if folder.parent != project else REST
                yield REST if is_record else kind, path, 0 if path.is_dir() else status.st_size


def write_project(folder: Path, edge: int, dates: int, polygons: int, steps: int) -> Path:
    """The granule, its labels and a project."""
    write_land(folder / "land", edge)
    write_catalog(folder / "catalog", edge, dates)
    write_polygons(folder / "labels.gpkg", edge, polygons)
    project = folder / "project"
    project.mkdir(exist_ok=True)
    (project / "config.yaml").write_text(CONFIG.replace("STEPS", str(steps)))
    return project


def measure(project: Path) -> dict[str, dict[str, float]]:
    """Plan and run, unless they have ended; what they took is stored in the project."""
    store = project / "measured.json"
    measured = json.loads(store.read_text()) if store.is_file() else {}
    for name, arguments in {"plan": ("plan",), "run": RUN}.items():
        if name not in measured:
            measured[name] = eopipe(project, f"{name}.txt", *arguments)
            store.write_text(json.dumps(measured))
    return measured


def rules_table(jobs: list[JobUsage]) -> Iterator[list[str]]:
    """CPU seconds, memory and time by rule, beside what its jobs requested."""
    yield ["rule", "jobs", "CPU s", "MB said", "MB of the largest job", "ratio", "minutes said", "measured"]
    by_rule = defaultdict[str, list[JobUsage]](list)
    for job in jobs:
        by_rule[job.rule].append(job)
    cpu = {rule: sum(job.cpu_s or 0 for job in group) for rule, group in by_rule.items()}
    for rule in sorted(cpu, key=lambda name: -cpu[name]):
        group = by_rule[rule]
        memory, request = max(job.memory_mb or 0 for job in group), group[0].requested
        ratio = f"{memory / request.memory_mb:.2f}" if request.memory_mb else "-"
        most, minutes = f"{request.memory_mb or 0:,.0f}", max(job.seconds for job in group) / 60
        cells = [f"{cpu[rule]:,.1f}", most, f"{memory:,.0f}", ratio, f"{request.minutes or 0:.0f}", f"{minutes:.1f}"]
        yield [rule, str(len(group)), *cells]
    yield ["= total", str(len(jobs)), f"{sum(cpu.values()):,.1f}", *[""] * 5]


def disk_rows(project: Path) -> Iterator[list[str]]:
    """Inodes and bytes of each kind of outputs that `plan` said, and measured ones."""
    yield ["kind", "inodes said", "measured", "ratio", "MB said", "measured", "ratio"]
    needs = json.loads((project / "plan/plan.json").read_text())["needs"]
    inodes, size, weights = Counter[str](), Counter[str](), 0
    for kind, path, bytes_of in files_of(project):
        inodes[kind] += 1
        weights += bytes_of if path.suffix in WEIGHTS else 0
        size[kind] += 0 if path.suffix in WEIGHTS else bytes_of
    totals = {"name": "= total", **{key: sum(need[key] for need in needs) for key in ("inodes", "bytes")}}
    inodes["= total"], size["= total"] = inodes.total(), size.total()
    for need in [*needs, totals]:
        name = need["name"]
        of_inodes = [f"{need['inodes']:,}", f"{inodes[name]:,}", f"{inodes[name] / need['inodes']:.2f}"]
        of_bytes = [f"{need['bytes'] / 1e6:,.1f}", f"{size[name] / 1e6:,.1f}", f"{size[name] / need['bytes']:.2f}"]
        yield [name, *of_inodes, *of_bytes]
    yield ["weights, not forecast", *["-"] * 4, f"{weights / 1e6:,.1f}", "-"]


def map_accuracy(folder: Path) -> tuple[float, float]:
    """Shares of the granule's pixels that the map has, and that it has right."""
    import rasterio

    mapped, right, pixels = 0, 0, 0
    files = (folder / "land/truth.tif", folder / "project/results/maps/mosaic/classes.tif")
    with rasterio.open(files[0]) as truth, rasterio.open(files[1]) as classes:
        for _, window in truth.block_windows(1):
            expected, predicted = (file.read(1, window=window) for file in (truth, classes))
            pixels += expected.size
            mapped += int((predicted != classes.nodata).sum())
            right += int((predicted == expected).sum())
    return mapped / pixels, right / pixels


def lines(rows: Iterator[list[str]]) -> str:
    """Markdown of a table."""
    first, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (first, ["---", *["---:"] * (len(first) - 1)], *others))


def summary(folder: Path, measured: dict[str, dict[str, float]]) -> str:
    """Wall time, CPU hours, memory and disk of plan and run, and the scores."""
    project = folder / "project"
    scores: dict[str, Any] = json.loads((project / "results/metrics.json").read_text())
    mapped, right = map_accuracy(folder)
    of_test = ", ".join(f"{name} {scores[name]['accuracy']:.3f}" for name in ("model", scores["baseline"]["name"]))
    texts = [
        f"{name}: {of['seconds']:,.0f} s, {of['cpu']:,.0f} CPU s ({of['cpu'] / 3600:.3f} CPU hours), largest process "
        f"{of['memory']:,.0f} MiB, at most {of['peak'] / 1e9:.2f} GB in the project"
        for name, of in measured.items()
    ]
    catalog = [path.stat().st_size for path in (folder / "catalog").rglob("*") if path.is_file()]
    planned = sum(need["cpu_hours"] for need in json.loads((project / "plan/plan.json").read_text())["needs"])
    texts.append(f"CPU hours said {planned:.3f}, of the run {measured['run']['cpu'] / 3600:.3f}")
    texts.append(f"catalog: {len(catalog):,} files, {sum(catalog) / 1e9:.2f} GB")
    texts.append(f"map: {mapped:.4f} of the pixels, {right:.4f} right; accuracy in test places: {of_test}")
    return "\n".join(texts)


def main() -> None:
    """Parse the arguments, measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--edge", type=int, default=10_980, help="edge of the granule in pixels of 10 m")
    parser.add_argument("--dates", type=int, default=12)
    parser.add_argument("--polygons", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200, help="training steps")
    options = parser.parse_args()
    folder = options.folder.absolute()
    project = write_project(folder, options.edge, options.dates, options.polygons, options.steps)
    measured = measure(project)
    for rows in (rules_table(read_jobs(project / "results")), disk_rows(project)):
        print(lines(rows), end="\n\n", flush=True)
    print(summary(folder, measured))
    print("load of the machine over 1, 5 and 15 minutes:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
