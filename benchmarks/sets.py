"""Models on the test pixels of projects whose scenes are split: `python benchmarks/sets.py PROJECT … [--seeds 5]`.

With `--shares 0.01 0.05 0.2` instead: each model on as many of the training chips, drawn at random so that no class is
without one, `--seeds` draws (which are also the seeds of the models), and accuracy and mIoU (mean, lowest draw).

A project is a folder with the `results` of `eopipe run` to `results/split.json`, and the chip set `set` if it has one.
Each model is trained by `eopipe train` on one core, and predicts the labelled test pixels alone. It prints accuracy and
mIoU (mean, lowest seed), ECE, CPU seconds of a training and microseconds of a predicted pixel; and for the default the
difference in accuracy from the best reference, with an interval by bootstrap of the units: polygons, or chips of the
test places, resampled with the seeds.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from eopipe.arrays import AnyArray, FloatArray, IntArray
from eopipe.inference.predictor import load_predict_function
from eopipe.models.model_folder import read_trained_model
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training.pixels import LabelledPixels, labelled_pixels

DEFAULT, NETWORK = "default", "network alone"
MODELS: dict[str, tuple[str, ...]] = {DEFAULT: (), NETWORK: ("--averaged-with", "none")}
REFERENCES: dict[str, tuple[str, ...]] = {
    f"{kind}, {features}": ("--architecture", kind, "--arguments", f"features={features}")
    for kind in ("forest", "boosting", "linear")
    for features in ("bands", "texture")
}
# Boosted trees take minutes on more features.
MAX_BOOSTED, BINS, DRAWS = 100, 15, 2000


class Predicted:
    """Probabilities (n, class) of the test pixels of a model, and what it cost."""

    def __init__(self, data: TrainingData, model: Path, cpu: float) -> None:
        trained = read_trained_model(model)
        predict = load_predict_function(trained, model, "cpu")
        start, parts = time.process_time(), list[FloatArray]()
        self.truth, self.units, size = list[AnyArray](), list[IntArray](), 0
        for pixels in labelled_pixels(data, trained, predict, "test"):
            parts.append(pixels.output())
            self.truth.append(pixels.truth)
            self.units.append(_units(data, pixels))
            size += pixels.mask.size
        self.cpu, self.per_pixel = cpu, 1e6 * (time.process_time() - start) / size
        self.probabilities, self.answers = np.concatenate(parts), np.concatenate(parts).argmax(1)

    def scores(self) -> tuple[float, float, float]:
        """Accuracy, mIoU and ECE."""
        truth, classes = np.concatenate(self.truth).astype(int), self.probabilities.shape[1]
        table = confusion_matrix(truth, self.answers, classes)
        values = ClassTables([str(n) for n in range(classes)]).scores(table.reshape(1, -1))
        confidence, right = self.probabilities.max(1), self.answers == truth
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        gaps = [abs((confidence - right)[bins == n].sum()) for n in range(BINS)]
        return float(values["accuracy"][0]), float(values["miou"][0]), sum(gaps) / len(truth)

    def right_by_unit(self) -> tuple[AnyArray, AnyArray]:
        """Correct pixels and pixels (unit,)."""
        unit = np.unique(np.concatenate(self.units), return_inverse=True)[1]
        right = self.answers == np.concatenate(self.truth)
        return np.bincount(unit, right), np.bincount(unit)


def _units(data: TrainingData, pixels: LabelledPixels) -> IntArray:
    """Polygons, or chips of the split's size, of labelled pixels."""
    rows, columns = np.nonzero(pixels.mask)
    (y, x), image = pixels.window, pixels.predictor.stores[0]
    number = next(n for n, (store, _) in enumerate(data.pairs) if store is image)
    if data.split.polygons:
        return np.asarray(data.pairs[number][1].read("polygon", y, x)[rows, columns], np.int64)
    chip = data.split.chip
    return (number << 40) + ((rows + y.start) // chip << 20) + (columns + x.start) // chip


def main() -> None:
    """Print a table for each project."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("projects", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shares", type=float, nargs="*", default=[])
    options = parser.parse_args()
    for project in options.projects:
        if options.shares:
            few_labels(project, options.shares, options.seeds)
            continue
        data, paths = open_project(project, project / "results/split.json")
        columns = "accuracy", "mIoU", "ECE", "train, CPU s", "predict, µs a pixel"
        print(f"\n| {project.name} | {' | '.join(columns)} |\n|---|---|---|---|---:|---:|", flush=True)
        runs = dict[str, list[Predicted]]()
        for title, arguments in (MODELS | REFERENCES).items():
            count = options.seeds if title in MODELS or title.startswith("forest") else 1
            if is_left_out(title, data):
                continue
            with tempfile.TemporaryDirectory() as folder:
                runs[title] = [trained(data, paths, Path(folder), arguments, seed) for seed in range(count)]
            print(row(title, runs[title]), flush=True)
        best = max(REFERENCES.keys() & runs.keys(), key=lambda title: np.mean([run.scores()[0] for run in runs[title]]))
        print(f"\nDefault less {best}: {difference(runs[DEFAULT], runs[best])}", flush=True)


def is_left_out(title: str, data: TrainingData) -> bool:
    """Whether a model would take minutes for the number of features."""
    return title.startswith("boosting") and len(data.bands) * (3 if "texture" in title else 1) > MAX_BOOSTED


def few_labels(project: Path, shares: list[float], draws: int) -> None:
    """Print the table of shares of the training chips."""
    data, _ = open_project(project, project / "results/split.json")
    models = {title: words for title, words in (MODELS | REFERENCES).items() if not is_left_out(title, data)}
    print(f"\n| {project.name}, training chips | {' | '.join(models)} |\n|---|{'---|' * len(models)}", flush=True)
    for share in shares:
        cells = []
        for words in models.values():
            scores = []
            for draw in range(draws):
                with tempfile.TemporaryDirectory() as name:
                    split = Path(name) / "split.json"
                    chips = write_share(data, project / "results/split.json", split, share, draw)
                    part, paths = open_project(project, split)
                    scores.append(trained(part, paths, Path(name), words, draw).scores()[:2])
            accuracy, miou = np.array(scores).T
            cells.append(f"{accuracy.mean():.3f} ({accuracy.min():.3f}) / {miou.mean():.3f} ({miou.min():.3f})")
        print(f"| {chips} ({share:.0%}) | {' | '.join(cells)} |", flush=True)


def write_share(data: TrainingData, whole: Path, path: Path, share: float, draw: int) -> int:
    """Write a split with a share of the training chips, at least one with each class; return their number."""
    document = json.loads(whole.read_text())
    samples, chip = document["samples"]["train"], document["chip"]
    chosen, missing = list[list[int]](), set(range(len(document["classes"])))
    least = max(1, round(share * len(samples)))
    for number in np.random.default_rng(draw).permutation(len(samples)):
        store, row, col = samples[number]
        labels = data.pairs[store][1].read("label", slice(row, row + chip), slice(col, col + chip))
        if missing & set(np.unique(labels).tolist()) or len(chosen) + len(missing) < least:
            chosen.append(samples[number])
            missing -= set(np.unique(labels).tolist())
        if len(chosen) >= least and not missing:
            break
    document["samples"]["train"] = sorted(chosen)
    document["audit"]["allow"] = {"statistics": "those of all training chips"}
    path.write_text(json.dumps(document))
    return len(chosen)


def open_project(project: Path, split: Path) -> tuple[TrainingData, list[str]]:
    """The data of a training by a split, and the arguments of `eopipe train` for them."""
    results = project / "results"
    stores = project / "set" if (project / "set").is_dir() else results
    tiles = tuple(sorted((results / "composites").glob("*.zarr"))) or tuple(sorted((stores / "tiles").glob("*.zarr")))
    labels = tuple(sorted((stores / "labels").glob("*.zarr")))
    inputs = TrainingInputs(tiles, labels, split, results / "statistics.json")
    words = ["--tiles", *tiles, "--labels", *labels, "--chips", inputs.chips, "--statistics", inputs.statistics]
    return TrainingData.open(inputs), [str(word) for word in words]


def trained(data: TrainingData, paths: list[str], folder: Path, arguments: tuple[str, ...], seed: int) -> Predicted:
    """Train a model, and predict the test pixels."""
    model = folder / str(seed)
    words = ["train", *paths, "--model", str(model), "--seed", str(seed), *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "eopipe", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Predicted(data, model, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def row(title: str, runs: list[Predicted]) -> str:
    """A row of the table."""
    accuracy, miou, ece = np.array([run.scores() for run in runs]).T
    lowest = [f" ({values.min():.3f})" if len(runs) > 1 else "" for values in (accuracy, miou)]
    costs = f"{np.mean([run.cpu for run in runs]):.0f} | {np.mean([run.per_pixel for run in runs]):.1f}"
    return f"| {title} | {accuracy.mean():.3f}{lowest[0]} | {miou.mean():.3f}{lowest[1]} | {ece.mean():.3f} | {costs} |"


def difference(defaults: list[Predicted], others: list[Predicted]) -> str:
    """The mean difference in accuracy with a 95 % interval of resampled units and seeds."""
    random, of_draws = np.random.default_rng(0), []
    tables = [[run.right_by_unit() for run in runs] for runs in (defaults, others)]
    pixels = tables[0][0][1]
    for _ in range(DRAWS):
        chosen = random.integers(0, len(pixels), len(pixels))
        first, second = (runs[random.integers(len(runs))][0][chosen].sum() for runs in tables)
        of_draws.append((first - second) / pixels[chosen].sum())
    low, high = np.quantile(of_draws, (0.025, 0.975))
    mean = np.mean([run.scores()[0] for run in defaults]) - np.mean([run.scores()[0] for run in others])
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f}), {len(pixels)} units"


if __name__ == "__main__":
    main()
