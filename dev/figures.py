"""`python -m dev.figures RESULTS`: the figures of the concept pages, as SVG, from a finished run of the demo.

Pixels, chips, splits, losses and jobs come from the run; the labels beside them are written here. The same run gives
the same bytes.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle

from eopipe.contract import Input, Knob, Option, Output, stage
from eopipe.reporting.figures import SPLIT_COLORS, class_colors
from eopipe.tiles.store import Tiles

FIGURES = Path(__file__).parents[1] / "docs/figures"
INK, PALE, ACCENT = "#22303a", "#e8eef0", "#00796b"
SCENE = "S2_ROMANIA_20180701"
STYLE: Any = {
    "svg.hashsalt": "eopipe",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
}


def stage_views(_: Path) -> Any:
    """One typed function, and the five views that are derived from it."""
    counts = Counter(type(port.mark) for port in stage("train").ports)
    kinds = [(Input, "input"), (Output, "output"), (Option, "option"), (Knob, "knob")]
    ports = ", ".join(f"{counts[kind]} {name}{'s' * (counts[kind] != 1)}" for kind, name in kinds)
    figure, axes = _canvas(8, 3.1)
    _box(axes, (2.2, 2.2), f"eopipe/stages/train.py\n{ports}", ACCENT)
    views = ["command\neopipe train", "config\nsection train:", "Snakemake\nrule train", "CWL tool\ncwl/train.cwl"]
    for x, text in zip((0.6, 1.7, 2.8, 3.9), views, strict=True):
        _box(axes, (x, 1.15), text, PALE, width=0.96)
        _arrow(axes, (2.2, 1.93), (x, 1.43))
    _box(axes, (2.2, 0.25), "results/model + run record\n(command, versions, digests)", PALE, width=2.1)
    for x in (0.6, 2.8, 3.9):
        _arrow(axes, (x, 0.87), (2.2 + (x - 2.2) * 0.3, 0.53))
    axes.set(xlim=(0, 4.5), ylim=(-0.1, 2.6))
    return figure


def cells_and_chips(results: Path) -> Any:
    """A scene on the grid, its chunks, and the chips; beside it a run of several cells."""
    tiles, document = Tiles(results / f"tiles/{SCENE}.zarr"), _split(results)
    image = _true_colour(tiles)
    figure, (chunks, chips, zones) = plt.subplots(1, 3, figsize=(9, 3.4))
    for axes in (chunks, chips):
        axes.imshow(image, interpolation="nearest")
        axes.set(xticks=(), yticks=())
    for line in range(32, image.shape[0], 32):
        chunks.axhline(line - 0.5, color="white", linewidth=0.8)
        chunks.axvline(line - 0.5, color="white", linewidth=0.8)
    chunks.set_title("a tile: one date on the grid\nin chunks of 32 x 32 pixels", fontsize=9)
    for name, color in zip(("train", "val", "test"), SPLIT_COLORS, strict=True):
        rows = document["samples"][name]
        for _, row, column in rows:
            edge = document["chip"]
            chips.add_patch(Rectangle((column - 0.5, row - 0.5), edge, edge, fill=False, color=color, linewidth=0.5))
    count = sum(map(len, document["samples"].values()))
    chips.set_title(
        f"{count} chips of {document['chip']} x {document['chip']} pixels:\nwindows of the tile", fontsize=9
    )
    for x, name in ((0.0, "utm34n"), (3.3, "utm35n")):
        zones.add_patch(Rectangle((x, 0.4), 2.9, 2.6, fill=False, color=INK))
        zones.text(x + 0.1, 3.15, f"cell {name}", fontsize=8)
    for corner, angle in (((0.4, 0.9), 4.0), ((1.6, 1.1), 4.0), ((3.9, 1.0), -4.0)):
        zones.add_patch(Rectangle(corner, 1.7, 1.5, angle=angle, color=ACCENT, alpha=0.35, linewidth=0))
    zones.plot([3.1, 3.1], [0.2, 3.4], color=INK, linestyle=":", linewidth=1)
    zones.text(3.1, -0.05, "border of two UTM zones", ha="center", fontsize=8)
    zones.set(xlim=(-0.1, 6.3), ylim=(-0.2, 3.7), xticks=(), yticks=(), aspect="equal")
    zones.set_title("a run over two zones (sketch):\nscenes keep their pixels", fontsize=9)
    zones.axis("off")
    figure.tight_layout()
    return figure


def splits_and_leakage(results: Path) -> Any:
    """The areas of the demo's split over its labels, and how similar labels are by their distance."""
    document, labels = _split(results), Tiles(next((results / "labels").glob("*.zarr")))
    values, valid = labels.read("label"), labels.valid()
    figure, (areas, curve) = plt.subplots(1, 2, figsize=(8, 3.4), width_ratios=(1, 1.2))
    colors = class_colors(tuple(document["classes"]), ())
    rgb = np.array([mpl.colors.to_rgb(color) for color in colors])
    areas.imshow(np.where(valid[..., None], rgb[np.minimum(values, len(colors) - 1)], 1.0), interpolation="nearest")
    edge = document["chip"]
    for name, color in zip(("train", "val", "test"), SPLIT_COLORS, strict=True):
        places = np.array(document["samples"][name])[:, 1:]
        (top, left), (bottom, right) = places.min(0), places.max(0) + edge
        areas.add_patch(
            Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, color=color, linewidth=2.5)
        )
        areas.text((left + right) / 2, -3, name, color=color, ha="center", fontweight="bold")
    areas.set(xticks=(), yticks=())
    areas.legend(
        handles=[Patch(color=c, label=n) for c, n in zip(colors, document["classes"], strict=True)],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.02),
        ncols=2,
        frameon=False,
    )
    distances = np.arange(1, 61)
    curve.plot(
        10 * distances, [_correlation(values, valid, int(step)) for step in distances], color=ACCENT, linewidth=2
    )
    label_range = document["audit"]["label_range"]
    curve.axvline(10 * label_range, color=INK, linestyle="--", linewidth=1)
    curve.annotate(f"range in split.json: {10 * label_range} m", (10 * label_range + 8, 0.75))
    curve.set(xlabel="distance of two pixels (m)", ylabel="correlation of their labels", xlim=(0, 600), ylim=(-0.1, 1))
    curve.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def exact_resume(results: Path) -> Any:
    """The losses of the demo's training, its checkpoints, and what a kill repeats."""
    lines = [json.loads(line) for line in (results / "model/metrics.jsonl").read_text().splitlines()]
    losses = np.array([(line["step"], line["loss"]) for line in lines if line.get("event") == "step"])
    last, every = int(losses[-1, 0]), next(p.default for p in stage("train").ports if p.name == "checkpoint_every")
    killed = last * 0.62 // 1
    saved = killed // every * every
    figure, axes = plt.subplots(figsize=(8, 3))
    axes.plot(losses[:, 0], losses[:, 1], color="#b9c4c9", linewidth=0.8)
    smooth = np.convolve(losses[:, 1], np.ones(15) / 15, "valid")
    axes.plot(losses[7 : 7 + len(smooth), 0], smooth, color=ACCENT, linewidth=1.8)
    axes.axvline(killed, color="#d55e00", linewidth=1.5)
    axes.axvspan(saved, killed, color="#d55e00", alpha=0.15)
    top = float(losses[:, 1].max())
    axes.annotate("kill -9", (killed + last * 0.008, top * 0.93), color="#d55e00")
    axes.annotate(
        f"the same command\ncontinues at step {saved:.0f}",
        (saved, top * 0.55),
        (saved - last * 0.3, top * 0.68),
        arrowprops={"arrowstyle": "->", "color": INK},
    )
    axes.plot(range(0, last + 1, every), [0.0] * len(range(0, last + 1, every)), "v", color=INK, clip_on=False)
    axes.set(xlabel="step (triangles: checkpoints)", ylabel="training loss", xlim=(0, last), ylim=(0, top))
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def crate_of_a_run(results: Path) -> Any:
    """The jobs of the demo's crate, by stage, and which stage reads what another wrote."""
    graph = json.loads((results / "crate/ro-crate-metadata.json").read_text())["@graph"]
    jobs, read = _jobs_of_crate(graph)
    # fmt: off
    places = {
        "search": (0, 1), "fetch": (1, 1), "preprocess": (2, 1), "composite": (3, 1), "label": (3, 2),
        "split": (4, 2), "train": (5, 1.5), "calibrate": (6, 2), "export": (6, 0), "predict": (7, 1),
        "evaluate": (8, 2), "report": (9, 1), "catalog": (9, 0),
    }
    # fmt: on
    edges = ["search fetch", "fetch preprocess", "preprocess composite", "composite split", "label split"]
    edges += ["split train", "composite train", "train calibrate", "train export", "calibrate predict"]
    edges += ["train predict", "predict evaluate", "evaluate report", "predict report", "predict catalog"]
    if {*jobs} != {*places} or not {*edges} <= read:
        raise ValueError(f"the crate has the stages {sorted(jobs)}, and not {sorted({*edges} - read)}")
    figure, axes = _canvas(9, 2.9)
    for edge in edges:
        (x, y), (to_x, to_y) = (places[name] for name in edge.split())
        _arrow(axes, (x + 0.42, y), (to_x - 0.42, to_y))
    for name, (x, y) in places.items():
        _box(axes, (x, y), f"{name}\n{jobs[name]} job{'s' * (jobs[name] > 1)}", PALE, width=0.84)
    axes.text(-0.4, -0.85, "Each job: command, settings, versions, times, digests of what it read and wrote")
    axes.set(xlim=(-0.6, 9.6), ylim=(-1, 2.5))
    return figure


DRAWN: dict[str, Callable[[Path], Any]] = {
    "stage": stage_views,
    "cells": cells_and_chips,
    "splits": splits_and_leakage,
    "resume": exact_resume,
    "crate": crate_of_a_run,
}


def draw(name: str, results: Path, to: Path) -> None:
    """Write one figure as SVG."""
    with plt.rc_context(STYLE):
        figure = DRAWN[name](results)
        figure.savefig(to, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
        plt.close(figure)
    # Lines of paths end in blanks.
    to.write_text(re.sub(r" +$", "", to.read_text(), flags=re.MULTILINE))


def _split(results: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((results / "split.json").read_text())
    return document


def _jobs_of_crate(graph: list[dict[str, Any]]) -> tuple[Counter[str], set[str]]:
    """The number of jobs of each stage, and "A B" where a job of stage B reads what one of A wrote."""
    entities = {entity["@id"]: entity for entity in graph}
    jobs: Counter[str] = Counter()
    inputs: list[tuple[str, str]] = []
    writers: dict[str, str] = {}
    for job in graph:
        match = re.fullmatch(r".*/eopipe/stages/(\w+)\.py", str(job.get("instrument", {}).get("@id", "")))
        if job["@type"] == "CreateAction" and match:
            jobs[match[1]] += 1
            inputs += [(name, match[1]) for name in _names(job.get("object"))]
            for name in _names(job.get("result")):
                writers |= dict.fromkeys((name, *_names(entities[name].get("hasPart"))), match[1])
    return jobs, {f"{writers[name]} {reader}" for name, reader in inputs if name in writers}


def _names(value: Any) -> list[str]:
    return [reference["@id"] for reference in (value if isinstance(value, list) else [value] if value else [])]


def _true_colour(tiles: Tiles) -> Any:
    image = tiles.physical(("red", "green", "blue"))
    low, high = np.percentile(image, (1, 99))
    return np.moveaxis(np.clip((image - low) / (high - low), 0, 1), 0, -1)


def _correlation(values: Any, valid: Any, step: int) -> float:
    """The correlation of the labels of two pixels at a distance of `step` pixels, along rows and columns."""
    pairs = [(values[step:], values[:-step], valid[step:] & valid[:-step])]
    pairs += [(values[:, step:], values[:, :-step], valid[:, step:] & valid[:, :-step])]
    a, b = (np.concatenate([pair[i][pair[2]] for pair in pairs]).astype(float) for i in (0, 1))
    return float(np.corrcoef(a, b)[0, 1])


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(width, height))
    axes.axis("off")
    return figure, axes


def _box(axes: Any, centre: tuple[float, float], text: str, color: str, width: float = 1.9) -> None:
    height = 0.54
    corner = centre[0] - width / 2, centre[1] - height / 2
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=.06", color=color, linewidth=0)
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=8, color="white" if color == ACCENT else INK)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=8, color=INK, linewidth=0.8))


def main(argv: Sequence[str] | None = None) -> int:
    """Write all figures of the concept pages."""
    parser = argparse.ArgumentParser(prog="python -m dev.figures", description=main.__doc__)
    parser.add_argument("results", type=Path, help="results of a finished run of the demo")
    results = parser.parse_args(argv).results
    FIGURES.mkdir(exist_ok=True)
    for name in DRAWN:
        draw(name, results, FIGURES / f"{name}.svg")
        print(f"wrote docs/figures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
