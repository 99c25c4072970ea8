"""How often intervals of areas contain the truth, and whether standard errors are right: samples of known landscapes.

Each landscape has a class of 40 % and one of 1 %, in patches, and a map with errors: noise, and a rare class of which
a third is omitted. Samples are drawn, labelled by the truth and estimated as the commands do.

    python benchmarks/areas.py [--draws 1000]
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import rasterio
from odc.geo.geobox import GeoBox
from rasterio.transform import from_origin
from scipy.ndimage import gaussian_filter

from eopipe.areas.design import allocate
from eopipe.areas.estimators import StratifiedSample
from eopipe.areas.population import Population
from eopipe.tiles.ground import pixel_hectares

CLASSES = ("other", "forest", "water")
LEGEND = ", ".join(f"{number}={name}" for number, name in enumerate(CLASSES))


def landscape(shape: tuple[int, int], seed: int) -> tuple[Any, Any, Any]:
    """Truth, map, and an older map (y, x) with more errors: 40 % forest, 1 % water."""
    rng = np.random.default_rng(seed)
    field, rare = (gaussian_filter(rng.normal(size=shape), sigma) for sigma in (12, 6))
    truth = np.where(field > np.quantile(field, 0.6), 1, 0).astype(np.uint8)
    truth[rare > np.quantile(rare, 0.99)] = 2
    maps = []
    for share in (0.06, 0.15):
        mapped = truth.copy()
        noise = rng.random(shape) < share
        mapped[noise] = rng.integers(0, 2, int(noise.sum()))
        shifted = np.roll(rare, 3, axis=1)
        mapped[(truth == 2) & (rng.random(shape) < 0.33)] = 0
        mapped[(shifted > np.quantile(shifted, 0.995)) & (truth != 2)] = 2
        maps.append(mapped)
    return truth, *maps


def write(path: Path, numbers: Any, grid: GeoBox, cell: str = "") -> Path:
    """A map as predict writes it."""
    profile = {
        "driver": "GTiff",
        "dtype": "uint8",
        "count": 1,
        "nodata": 255,
        "crs": str(grid.crs),
        "compress": "deflate",
    }
    height, width = numbers.shape
    with rasterio.open(path, "w", height=height, width=width, transform=grid.affine, **profile) as file:
        file.write(numbers, 1)
        file.update_tags(classes=LEGEND, scenes="made-up", **({"cell": cell} if cell else {}))
    return path


def made_up(folder: Path, kind: str) -> tuple[list[Path], list[Path], list[Any]]:
    """Maps to sample, maps to estimate, and the truth of each."""
    shapes = {"": (1500, 1500)}
    grids = {"": GeoBox((1500, 1500), from_origin(5e6, 3.2e6, 10, 10), "EPSG:3035")}
    if kind == "degrees":
        grids[""] = GeoBox((1500, 1500), from_origin(10, 68, 0.01, 0.01), "EPSG:4326")
    if kind == "two zones":
        shapes = {"utm32n": (1500, 900), "utm33n": (1500, 700)}
        grids = {
            "utm32n": GeoBox((1500, 900), from_origin(727_000, 5_300_000, 10, 10), "EPSG:32632"),
            "utm33n": GeoBox((1500, 700), from_origin(270_000, 5_300_000, 10, 10), "EPSG:32633"),
        }
    sampled, estimated, truths = list[Path](), list[Path](), []
    for number, (cell, shape) in enumerate(shapes.items()):
        truth, mapped, older = landscape(shape, 10 + number)
        beyond = np.zeros(shape, bool)
        if cell:
            # Ground of the other cell.
            beyond[:, :60] = number == 1
            beyond[:, -60:] = number == 0
        truth[beyond], mapped[beyond], older[beyond] = 255, 255, 255
        new = write(folder / f"new{cell}.tif", mapped, grids[cell], cell)
        old = write(folder / f"old{cell}.tif", older, grids[cell], cell)
        sampled.append(old if kind == "another map's strata" else new)
        estimated.append(new)
        truths.append((truth, grids[cell]))
    return sampled, estimated, truths


def hectares_of(truths: list[Any]) -> Any:
    """The hectares of each class."""
    total = np.zeros(len(CLASSES))
    for truth, grid in truths:
        whole = slice(0, truth.shape[0]), slice(0, truth.shape[1])
        is_there = truth != 255
        total += np.bincount(truth[is_there], pixel_hectares(grid, *whole)[is_there], len(CLASSES))
    return total


def simulate(kind: str, number: int, draws: int, print_row: Callable[..., None]) -> None:
    """Draw samples of a landscape, and print how their estimates compare with the truth."""
    with TemporaryDirectory() as temporary:
        sampled, estimated, truths = made_up(Path(temporary), kind)
        population = Population.open(sampled)
        counts, exact = population.count(), hectares_of(truths)
        sizes = allocate(number, counts.total_pixels, counts.hectares, 50, CLASSES)
        strata = [np.zeros((0, 4))]
        # All pixels once, by stratum: a draw is then a choice of rows.
        for each, window, file in population.windows():
            _, numbers = population.read(each, window, file)
            rows, columns = np.nonzero(numbers != 255)
            areas = pixel_hectares(population.maps[each].grid, *window)
            truth = truths[each][0][window]
            strata.append(
                np.column_stack(
                    [numbers[rows, columns], areas[rows, columns], truth[rows, columns], np.arange(len(rows))]
                )
            )
            with rasterio.open(estimated[each]) as other:
                strata[-1][:, 3] = other.read(1)[window][rows, columns]
        table = np.concatenate(strata)
        of_stratum = [np.flatnonzero(table[:, 0] == stratum) for stratum in range(len(CLASSES))]
        rng = np.random.default_rng(1)
        within, plain, errors, values = (np.zeros((draws, len(CLASSES))) for _ in range(4))
        agrees = np.zeros(draws)
        overall = float((table[:, 2] == table[:, 3]) @ table[:, 1] / table[:, 1].sum())
        for draw in range(draws):
            chosen = np.concatenate(
                [rows[rng.choice(len(rows), size, replace=False)] for rows, size in zip(of_stratum, sizes, strict=True)]
            )
            numbers, areas, labels, mapped = table[chosen].T
            sample = StratifiedSample(numbers.astype(int), areas, counts.total_pixels, counts.hectares)
            for number_of_class in range(len(CLASSES)):
                share = sample.ratio(labels == number_of_class)
                assert share
                assert share.interval
                area = share.times(sample.total_hectares)
                error = np.sqrt(sample.variance(labels == number_of_class))
                values[draw, number_of_class], errors[draw, number_of_class] = area.value, error
                within[draw, number_of_class] = area.interval[0] <= exact[number_of_class] <= area.interval[1]
                plain[draw, number_of_class] = abs(area.value - exact[number_of_class]) <= 1.96 * error
            accuracy = sample.ratio(mapped == labels)
            assert accuracy
            assert accuracy.interval
            agrees[draw] = accuracy.interval[0] <= overall <= accuracy.interval[1]
        for index, name in ((1, "forest"), (2, "water")):
            print_row(
                kind,
                name,
                f"{100 * exact[index] / exact.sum():.2f}",
                int(sizes.sum()),
                f"{100 * within[:, index].mean():.1f}",
                f"{100 * plain[:, index].mean():.1f}",
                f"{values[:, index].mean() / exact[index]:.3f}",
                f"{np.sqrt((errors[:, index] ** 2).mean()) / values[:, index].std():.3f}",
                f"{100 * agrees.mean():.1f}",
            )


def main() -> None:
    """Print a table for each kind of landscape and number of pixels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    draws = parser.parse_args().draws
    heads = (
        "landscape",
        "class",
        "share %",
        "n",
        "within %",
        "1.96 errors %",
        "mean / truth",
        "error / spread",
        "accuracy %",
    )
    print(" | ".join(heads))
    for kind in ("equal area", "degrees", "two zones", "another map's strata"):
        for number in (300, 600, 1200):
            simulate(kind, number, draws, lambda *cells: print(" | ".join(map(str, cells)), flush=True))
    print("brute force, 10,000 draws:")
    simulate("equal area", 600, 10 * draws, lambda *cells: print(" | ".join(map(str, cells)), flush=True))


if __name__ == "__main__":
    main()
