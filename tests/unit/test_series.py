"""Maps of periods as a series: areas by date, changes where both dates are mapped, drift, and models that differ."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import grid_of
from test_areas import CLASSES, SHAPE, a_map, draw, errors_in, estimate, label, legend, truth_of

from eopipe import cli
from eopipe.areas.areas_document import EstimatedValue
from eopipe.arrays import AnyArray
from eopipe.reporting.series import NOT_COUNTED, PeriodSeries, difference_interval
from eopipe.reporting.status import MapStatus
from eopipe.text_files import read_json, write_json
from eopipe.tiles.ground import pixel_hectares
from eopipe.tiles.store import NO_LABEL

DAYS = ("2026-06-03", "2026-07-05", "2026-08-01")
NAMES = [day[:7] for day in DAYS]


def write_period(folder: Path, day: str, numbers: AnyArray, grid: Any = None, **changes: Any) -> Path:
    """The results of a period, as far as a series reads them."""
    grid = grid or grid_of(numbers.shape)
    a_map(folder / "maps/mosaic/classes.tif", numbers, grid)
    hectares = pixel_hectares(grid, slice(0, numbers.shape[0]), slice(0, numbers.shape[1]))
    areas = {
        name: {"pixels": int((numbers == number).sum()), "hectares": float(hectares[numbers == number].sum())}
        for number, name in enumerate(CLASSES)
    }
    status = {
        "model": "unet-1",
        "task": "segmentation",
        "classes": [*CLASSES],
        "scenes": 2,
        "days": [day],
        "compared": True,
        "unlike_training": [],
        "missing_classes": [name for name, area in areas.items() if not area["pixels"]],
        "areas": areas,
        "bands": {"red": {"training": [0.0, 0.2], "inputs": [0.01, 0.21], "beyond": 0.03}},
    }
    write_json(folder / "status.json", MapStatus.model_validate(status | changes).model_dump())
    return folder


@pytest.fixture
def months(tmp_path: Path) -> list[Path]:
    """Three months: a block of the second is water, the third has no water and a tenth without data."""
    first = truth_of()
    second, third = first.copy(), first.copy()
    second[:10, :20] = 2
    third[third == 2] = 1
    third[:12] = NO_LABEL
    maps = zip(NAMES, DAYS, (first, second, third), strict=True)
    return [write_period(tmp_path / "results" / name, day, numbers) for name, day, numbers in maps]


def test_areas_and_changes_are_those_of_the_pixels_whatever_the_order_of_the_runs(
    months: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json, page = tmp_path / "series.json", tmp_path / "series.html"
    argv = ["compare", *map(str, reversed(months)), "--json", str(json), "--page", str(page)]
    assert cli.main(argv) == 0
    text = capsys.readouterr().out
    document = read_json(json)
    assert [row["name"] for row in document["periods"]] == NAMES
    numbers = [read_map(folder) for folder in months]
    hectares = pixel_hectares(grid_of(SHAPE), slice(0, SHAPE[0]), slice(0, SHAPE[1]))
    for change, (before, after) in zip(document["changes"], pairwise(numbers), strict=True):
        for first, name in enumerate(CLASSES):
            for other, to in enumerate(CLASSES):
                expected = hectares[(before == first) & (after == other)].sum()
                assert change["hectares"][name][to] == pytest.approx(expected, abs=1e-3)
    assert [(row["from"], row["to"]) for row in document["changes"]] == [*pairwise(NAMES)]
    assert "Something is unusual in 2026-08: see the inputs below." in text
    assert "The map has no pixel of water." in text
    html = page.read_text()
    assert html.count("<img") == len(NAMES)
    assert "3.0" in html
    assert "errorbar" not in html
    # Once more, since it is a page of its own.
    assert cli.main(argv) == 0
    assert page.read_text() == html


def read_map(folder: Path) -> AnyArray:
    import rasterio

    with rasterio.open(folder / "maps/mosaic/classes.tif") as file:
        numbers: AnyArray = file.read(1)
    return numbers


def test_areas_with_errors_are_beside_those_of_the_maps_where_a_sample_is_there(
    months: list[Path], tmp_path: Path
) -> None:
    for number, folder in enumerate(months[:2]):
        mapped, truth = folder / "maps/mosaic/classes.tif", errors_in(read_map(folder), seed=number)
        sample = tmp_path / f"sample-{number}"
        assert draw(sample, mapped, "--number", 240, "--seed", number) == 0
        label(sample / "sample.gpkg", lambda pixel, truth=truth: CLASSES[int(truth[pixel["row"], pixel["column"]])])
        estimate(folder, [mapped], "--sample", sample / "sample.gpkg")
    series = PeriodSeries.of(months, NAMES)
    assert [row[0] for row in series.area_rows] == [
        "2026-06",
        "2026-06, estimated",
        "2026-07",
        "2026-07, estimated",
        "2026-08",
    ]
    assert {row[0] for row in series.net_rows} == {"2026-06 to 2026-07"}
    areas = [read_json(folder / "areas.json")["areas"]["crop"]["hectares"] for folder in months[:2]]
    row = next(row for row in series.net_rows if row[1] == "crop")
    assert float(row[2]) == pytest.approx(areas[1]["estimate"] - areas[0]["estimate"], rel=1e-3)
    low, high = map(float, row[3].split(" to "))
    assert low < float(row[2]) < high
    document = series.json()["periods"]
    assert document[0]["estimated_hectares"]["crop"]["standard_error"] == areas[0]["standard_error"] > 0
    assert document[2]["estimated_hectares"] == {}


def test_intervals_of_differences_contain_the_truth_as_often_as_they_say() -> None:
    """Simulated truth: two independent estimates with normal errors of different sizes."""
    rng, truth, errors = np.random.default_rng(5), (30.0, 34.0), (1.5, 4.0)
    hits = 0
    for _ in range(2000):
        values = [float(rng.normal(mean, error)) for mean, error in zip(truth, errors, strict=True)]
        before, after = (
            EstimatedValue(estimate=value, standard_error=error, interval=[value - 1.96 * error, value + 1.96 * error])
            for value, error in zip(values, errors, strict=True)
        )
        low, high = difference_interval(before, after)
        assert low is not None
        assert high is not None
        hits += low <= truth[1] - truth[0] <= high
    assert 0.935 <= hits / 2000 <= 0.965
    unknown = EstimatedValue(estimate=1.0, standard_error=None, interval=None)
    assert difference_interval(unknown, unknown) == (None, None)


def test_maps_of_other_grids_have_areas_and_no_change(tmp_path: Path) -> None:
    numbers = truth_of()
    moved = grid_of(SHAPE, left=500_010.0)
    folders = [write_period(tmp_path / "a", DAYS[0], numbers), write_period(tmp_path / "b", DAYS[1], numbers, moved)]
    series = PeriodSeries.of(folders, ["a", "b"])
    assert series.changes[0].hectares is None
    assert series.change_rows[0][1] == NOT_COUNTED
    assert series.area_rows[0][1:] == series.area_rows[1][1:]


def test_a_model_that_changed_is_named(tmp_path: Path) -> None:
    numbers = truth_of()
    folders = [
        write_period(tmp_path / "a", DAYS[0], numbers),
        write_period(tmp_path / "b", DAYS[1], numbers, model="unet-2"),
    ]
    sentences = PeriodSeries.of(folders, ["a", "b"]).sentences
    assert "a is by unet-1 and b not: differences are also those of the models." in sentences


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"areas": {}, "task": "regression"}, "is a map of regression values; a series is of the areas of classes"),
        (
            {"classes": ["crop", "forest"]},
            "2026-07 has the classes crop, forest and water, 2026-06 has crop and forest",
        ),
        ({"days": []}, "2026-06 has no scene with a date"),
    ],
)
def test_what_is_no_series_is_refused_in_one_sentence(
    months: list[Path], changes: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(months[0] / "status.json", read_json(months[0] / "status.json") | changes)
    assert cli.main(["compare", *map(str, months)]) == 3
    assert sentence in capsys.readouterr().err


def test_a_stale_estimate_and_a_map_of_each_scene_are_refused(
    months: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    a_map(months[1] / "maps/other/classes.tif", truth_of(), scenes="t")
    assert cli.main(["compare", *map(str, months)]) == 3
    assert "has a map of each scene, and a series has one map of each period" in capsys.readouterr().err


def test_the_legend_of_a_map_is_read_from_its_file(months: list[Path]) -> None:
    assert legend() == "0=crop, 1=forest, 2=water"
    assert PeriodSeries.of(months, NAMES).colors() == PeriodSeries.of(months[:2], NAMES[:2]).colors()
