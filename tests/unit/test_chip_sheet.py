"""The sheet of a chip set: which test chips are on it, what it shows of them, and where they are."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from builders import write_map
from chip_files import EDGE, import_set, made_split, write_world
from PIL import Image
from scenery import Run

from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.splits import SPLITS
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.reporting.chip_sheet import (
    LOCATOR,
    ChipSheet,
    choose_groups,
    draw_chip_sheet,
    locator_box,
    read_chip_sheet,
)
from eopipe.reporting.figures import SPLIT_COLORS, rgb
from eopipe.reporting.page import read_panels, render_comparison
from eopipe.reporting.panels import INCORRECT
from eopipe.reporting.rasters import MapFile
from eopipe.reporting.scores import TextTable
from eopipe.reporting.split_maps import unrolled
from eopipe.tasks.task import SPREAD
from eopipe.tiles.store import NO_LABEL, Tiles

LEGEND = {"land": "#e69f00", "water": "#0072b2"}


def sheet_of(
    run: Run, folder: Path, tests: int = 12, task: str = "", *, spread: int = 0
) -> tuple[ChipSheet, ChipPlaces]:
    """A set of 15 chips, whose test chip number k has k wrong pixels in its map; the others are training chips."""
    write_world(folder, 3, 5)
    import_set(run, folder)
    tiles, labels = (Tiles(folder / f"set/{kind}/chips-0000.zarr") for kind in ("tiles", "labels"))
    places = ChipPlaces.of([tiles])
    assert places is not None
    mapped = labels.read("label")
    for number, (_, row, column) in enumerate(places.samples.tolist()):
        part = mapped[row : row + EDGE, column : column + EDGE].reshape(-1)
        part[:number] = 1 - part[:number]
        mapped[row : row + EDGE, column : column + EDGE] = part.reshape(EDGE, EDGE)
    samples = {"train": places.samples[tests:], "val": places.samples[:0], "test": places.samples[:tests]}
    both = np.stack([mapped == 0, mapped == 1]).astype(np.uint8)
    both[:, mapped == NO_LABEL] = 255
    path = folder / "probabilities.tif"
    of_members = [np.where(both[:1] == NO_LABEL, NO_LABEL, spread).astype(np.uint8)] if spread else []
    names = (*LEGEND, *(SPREAD for _ in of_members))
    write_map(path, np.concatenate([both, *of_members]), tiles.grid, names=names)
    classes = write_map(folder / "classes.tif", both if task else mapped[None], tiles.grid, task=task)
    min_share = 0.05 if task else None
    sheet = read_chip_sheet(
        {"": [MapFile("", {"": classes}, {"": path})]}, [(tiles, labels)], made_split(samples=samples), min_share
    )
    assert sheet is not None
    return sheet, places


def test_the_worst_median_and_best_test_chips_are_on_the_sheet(run: Run, tmp_path: Path) -> None:
    sheet, places = sheet_of(run, tmp_path)
    numbers = {name: [chip.number for chip in chips] for name, chips in sheet.groups.items()}
    assert numbers == {"Worst": [11, 10, 9], "Median": [7, 6, 5], "Best": [2, 1, 0]}
    assert sheet.splits.tolist() == [2] * 12 + [0] * 3
    for chip in sheet.chips:
        assert chip.error == pytest.approx(chip.number / EDGE**2)
        with rasterio.open(tmp_path / places.records[chip.number]["mask"]) as mask:
            assert (chip.label == mask.read(1)).all()
        assert np.flatnonzero(chip.label != chip.mapped[""]).tolist() == [*range(chip.number)]
        assert chip.has_data.all()
        assert chip.pixels.shape == (EDGE, EDGE, 3)


def test_the_spread_of_an_ensemble_is_no_class_of_the_sheet(run: Run, tmp_path: Path) -> None:
    for name in ("plain", "spread"):
        (tmp_path / name).mkdir()
    plain, _ = sheet_of(run, tmp_path / "plain", task="multilabel")
    other, _ = sheet_of(run, tmp_path / "spread", task="multilabel", spread=9)
    for first, second in zip(plain.chips, other.chips, strict=True):
        np.testing.assert_array_equal(first.mapped[""], second.mapped[""])


def test_few_test_chips_are_all_on_the_sheet_once() -> None:
    assert choose_groups([4, 2, 7]) == {"All test chips, the worst first": [4, 2, 7]}
    for count in range(10, 30):
        groups = choose_groups([*range(count)])
        assert len({number for group in groups.values() for number in group}) == 9


def test_chips_of_several_labels_are_ordered_by_their_wrong_labels(run: Run, tmp_path: Path) -> None:
    sheet, _ = sheet_of(run, tmp_path, task="multilabel")
    # One wrong pixel is enough for a label that is predicted somewhere; all chips have both classes.
    assert {chip.error for chip in sheet.chips} == {0.0}
    assert [chip.number for chip in sheet.chips][:3] == [0, 1, 2]


@pytest.mark.parametrize("tests", [12, 2])
def test_the_drawn_sheet_shows_wrong_pixels_and_the_split_of_each_place(run: Run, tmp_path: Path, tests: int) -> None:
    sheet, _ = sheet_of(run, tmp_path, tests)
    draw_chip_sheet(tmp_path / "sheet.png", sheet, ("floods", "95 % correct", "ESA"), LEGEND)
    with Image.open(tmp_path / "sheet.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    half = len(pixels) // 2
    # Above are the chips, below is the map of their places, left of the legend.
    assert (pixels[:half] == rgb(INCORRECT)).all(-1).any()
    places = pixels[half:, : pixels.shape[1] // 3]
    colors = {name: (places == rgb(color)).all(-1).sum() for name, color in zip(SPLITS, SPLIT_COLORS, strict=True)}
    assert colors["val"] == 0
    assert (colors["train"] > colors["test"]) == (tests == 2)


@pytest.mark.parametrize(
    ("longitudes", "latitudes"), [((179, -179), (10, 11)), ((-170, 170), (-85, 85)), ((5, 5), (50, 50))]
)
def test_the_map_of_the_places_is_around_all_chips_and_on_earth(
    longitudes: tuple[float, float], latitudes: tuple[float, float]
) -> None:
    rows = tuple({"longitude": x, "latitude": y} for x, y in zip(longitudes, latitudes, strict=True))
    places = ChipPlaces(EDGE, np.zeros((2, 3), np.int64), rows)
    (_, _, width, height), (west, east, south, north) = locator_box(places, 0)
    assert west < east < west + 400
    assert all(west < x < east for x in unrolled(places.degrees[:, 0]))
    assert -90 <= south < min(latitudes)
    assert max(latitudes) < north <= 90
    assert 0 < width <= LOCATOR[0] + 1e-9
    assert 0 < height <= LOCATOR[1] + 1e-9
    # As long on the ground in both directions.
    shrink = np.cos(np.radians(np.mean(latitudes)))
    assert width / (east - west) == pytest.approx(shrink * height / (north - south))


@pytest.mark.parametrize("places", ["test", "val"])
def test_maps_of_compared_runs_of_a_chip_set_are_a_sheet_and_no_mosaic(run: Run, tmp_path: Path, places: str) -> None:
    sheet, _ = sheet_of(run, tmp_path)
    tiles, labels = (Tiles(tmp_path / f"set/{kind}/chips-0000.zarr") for kind in ("tiles", "labels"))
    truth = labels.read("label")
    exact = write_map(tmp_path / "exact.tif", truth[None], tiles.grid)
    # Chips of the sheet are of the places that are compared.
    samples = {name: sheet.places.samples[:12] if name == places else sheet.places.samples[12:13] for name in SPLITS}
    split = made_split(samples=samples)
    runs = [
        EvaluationData([EvaluatedMap(0, {"": path}, [tiles], labels)], tuple(LEGEND), split)
        for path in (tmp_path / "classes.tif", exact)
    ]
    panels = read_panels(runs, ["best", "other"], places)
    assert panels.groups == []
    assert panels.sheet is not None
    assert [chip.number for chip in panels.sheet.chips] == [11, 10, 9, 7, 6, 5, 2, 1, 0]
    for chip in panels.sheet.chips:
        assert (chip.mapped["best"] != chip.label).sum() == chip.number
        assert (chip.mapped["other"] == chip.label).all()
    heads = ("Score", "best", "other")
    page = render_comparison(["best", "other"], TextTable("Scores", heads, []), TextTable("", heads, []), panels)
    assert page.count("<img ") == 1
    assert 'class="scalebar"' not in page
    assert 'href="#maps"' in page
