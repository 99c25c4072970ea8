"""Cost of `evaluate` on synthetic stores of 10 to 300 bands, and its baselines where labels are few.

    python benchmarks/baselines.py cost [BANDS ...]
    python benchmarks/baselines.py labels TILES LABELS SPLIT MAP

The first prints CPU seconds and the largest memory of `evaluate` by number of bands, six classes. The second takes the
results of a run: its baselines are fitted to shares of its labelled training pixels, and, with train and test swapped,
of its test pixels.
"""

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/unit")]
from chip_files import made_split  # noqa: E402
from landscape import field  # noqa: E402
from scenery import write_raster  # noqa: E402
from test_baselines import store  # noqa: E402

from eopipe.evaluation.baseline import BASELINES, FITS, DrawnPixels, FeatureModel, sampled_pixels, width_of  # noqa: E402
from eopipe.evaluation.evaluate import evaluate_maps  # noqa: E402
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData  # noqa: E402
from eopipe.tasks import TASKS  # noqa: E402
from eopipe.tasks.segmentation import ClassTables, confusion_matrix  # noqa: E402
from eopipe.tiles.layout import Layout  # noqa: E402
from eopipe.tiles.store import Tiles, add_array, new_store  # noqa: E402

EDGE, CHIP, CLASSES = 384, 32, 6
SHARES, DRAWS = (0.01, 0.05, 0.2, 1.0), 3


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("cost").add_argument("bands", type=int, nargs="*", default=[10, 33, 100, 300])
    of_labels = commands.add_parser("labels")
    for name in ("tiles", "labels", "split", "map"):
        of_labels.add_argument(name, type=Path)
    options = parser.parse_args()
    if options.command == "labels":
        few_labels(EvaluationData.read((options.map,), (options.tiles,), (options.labels,), options.split))
        return
    print("| bands | chosen by | CPU s | memory so far, MB |\n|---|---|---|---|", flush=True)
    for bands in options.bands:
        for title, has_validation in (("folds", False), ("validation places", True)):
            with tempfile.TemporaryDirectory() as name:
                seconds = cost(Path(name), bands, has_validation)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"| {bands} | {title} | {seconds:.0f} | {memory:.0f} |", flush=True)


def cost(folder: Path, bands: int, has_validation: bool) -> float:
    """CPU seconds of the scores of a map of six classes, of which a third trains."""
    fields = np.stack([field(EDGE, seed, 24) for seed in range(8)])
    rng = np.random.default_rng(0)
    truth = np.digitize(fields[0] + 0.5 * fields[1], (-1, -0.4, 0, 0.4, 1)).astype(np.uint8)
    path = folder / f"{has_validation}.zarr"
    values = np.stack([rng.normal(size=8) @ fields.reshape(8, -1) for _ in range(bands)]).reshape(bands, EDGE, EDGE)
    image = store(path, np.clip(3 + 0.3 * values + rng.normal(0, 0.2, values.shape), 0, 6))
    names = tuple(f"class {n}" for n in range(CLASSES))
    with new_store(path.with_suffix(".label"), image.grid, names, "", {}) as group:
        for name, array in (("label", truth), ("valid", np.ones_like(truth))):
            add_array(group, name, array.shape, array.dtype, Layout(32, 64))[:] = array
    third = EDGE // 3
    samples = {
        name: [(0, row, col) for row in range(0, EDGE, CHIP) for col in range(start, start + third, CHIP)]
        for name, start in (("train", 0), ("val", third), ("test", 2 * third))
    }
    split = made_split(chip=CHIP, samples=samples if has_validation else samples | {"val": []})
    mapped = write_raster(path.with_suffix(".tif"), truth, nodata=None)
    group = EvaluatedMap(0, {"": mapped}, [image], Tiles(path.with_suffix(".label")))
    data = EvaluationData([group], names, split, TASKS["segmentation"])
    start = time.process_time()
    evaluate_maps(data, 20_000, 0)
    return time.process_time() - start


def few_labels(data: EvaluationData) -> None:
    """Print accuracy and mIoU of each baseline by share of the labels, with CPU seconds of all fits."""
    swapped = {"train": data.split.samples["test"], "test": data.split.samples["train"]}
    other = replace(data, split=data.split.model_copy(update={"samples": data.split.samples | swapped}))
    for title, run in (("as the run", data), ("swapped", other)):
        train, test = (sampled_pixels(run, 20_000, [0], name)[0] for name in ("train", "test"))
        print(f"\n| {title}, share of {len(train.truth)} px | {' | '.join(BASELINES)} | CPU s |")
        print(f"|---|{'---|' * (len(BASELINES) + 1)}")
        for share in SHARES:
            print(f"| {100 * share:g} % | {' | '.join(_row(run, train, test, share))} |", flush=True)


def _row(run: EvaluationData, train: DrawnPixels, test: DrawnPixels, share: float) -> list[str]:
    start, cells = time.process_time(), []
    draws = DRAWS if share < 1 else 1
    for key, (kind, parts) in BASELINES.items():
        fits = FITS if kind == "boosted trees" else 1
        if width_of(train.features, parts) > 100 and fits > 1:
            cells.append("-")
            continue
        scores = []
        for draw in range(draws):
            order = np.random.default_rng(draw).permutation(len(train.truth))
            part = train.chosen(order[: max(round(share * len(order)), 2)])
            model = FeatureModel.fit(key, [part] * fits, len(run.names), range(fits))
            table = confusion_matrix(test.truth.astype(np.int64), model.answer(test.features), len(run.names))
            scores.append(ClassTables(run.names).scores(table.reshape(1, -1)))
        accuracy, miou = (np.mean([float(score[name][0]) for score in scores]) for name in ("accuracy", "miou"))
        cells.append(f"{accuracy:.3f} / {miou:.3f}")
    return [*cells, f"{time.process_time() - start:.0f}"]


if __name__ == "__main__":
    main()
