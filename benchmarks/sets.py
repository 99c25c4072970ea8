"""Models on the test pixels of projects whose scenes are split: `python benchmarks/sets.py PROJECT … [--seeds 5]`.

A project is a folder with the `results` of `eopipe run` to `results/split.json`, and the chip set `set` if it has one.
Each model is trained by `eopipe train` on one core, and predicts the labelled test pixels alone. It prints accuracy and
mIoU (mean, lowest seed), ECE, CPU seconds of a training and microseconds of a predicted pixel; and for the default the
difference in accuracy from the best reference, with an interval by bootstrap of the units: polygons, or chips of the
test places, resampled with the seeds.
"""

import argparse
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
from eopipe.tasks.classes import ClassTables, confusion_matrix
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
    options = parser.parse_args()
    for project in options.projects:
        data, paths = open_project(project)
        columns = "accuracy", "mIoU", "ECE", "train, CPU s", "predict, µs a pixel"
        print(f"\n| {project.name} | {' | '.join(columns)} |\n|---|---|---|---|---:|---:|", flush=True)
        runs = dict[str, list[Predicted]]()
        for title, arguments in (MODELS | REFERENCES).items():
            count = options.seeds if title in MODELS or title.startswith("forest") else 1
            if title.startswith("boosting") and len(data.bands) * (3 if "texture" in title else 1) > MAX_BOOSTED:
                continue
            with tempfile.TemporaryDirectory() as folder:
                runs[title] = [trained(data, paths, Path(folder), arguments, seed) for seed in range(count)]
            print(row(title, runs[title]), flush=True)
        best = max(REFERENCES.keys() & runs.keys(), key=lambda title: np.mean([run.scores()[0] for run in runs[title]]))
        print(f"\nDefault less {best}: {difference(runs[DEFAULT], runs[best])}", flush=True)


def open_project(project: Path) -> tuple[TrainingData, list[str]]:
    """The data of a training, and the arguments of `eopipe train` for them."""
    results = project / "results"
    stores = project / "set" if (project / "set").is_dir() else results
    tiles = tuple(sorted((results / "composites").glob("*.zarr"))) or tuple(sorted((stores / "tiles").glob("*.zarr")))
    labels = tuple(sorted((stores / "labels").glob("*.zarr")))
    inputs = TrainingInputs(tiles, labels, results / "split.json", results / "statistics.json")
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
