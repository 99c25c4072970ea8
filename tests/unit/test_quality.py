"""What the page says of the data: outlier scenes, histograms by date, thumbnails, citations."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import write_store
from chip_files import made_split
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from eopipe.reporting import data_tables
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.data_tables import MAX_SCENES, DataQuality, distances, read_quality
from eopipe.reporting.figures import CSS_COLORS, TWO
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

SHAPE = (64, 64)


def write_scene(path: Path, shift: float = 0, *, valid: float = 1, bands: tuple[str, ...] = ("red", "nir")) -> Tiles:
    random = np.random.default_rng(len(path.name) + sum(map(ord, path.name)))
    image = random.normal(1000 + shift, 100, (len(bands), *SHAPE)).round().astype(np.uint16)
    valid_pixels = (random.random(SHAPE) < valid).astype(np.uint8)
    measured = {
        "valid_fraction": float(valid_pixels.mean()),
        "quality": {"nodata": 0.25, "masked": 0.125, "saturated": 0.0},
    }
    return Tiles(write_store(path, bands, {"image": image, "valid": valid_pixels}, layout=Layout(16, 64), **measured))


def quality_of(stores: list[Tiles]) -> DataQuality:
    days = {store.scene: f"2023-08-{n + 1:02}" for n, store in enumerate(stores)}
    return read_quality(stores, days)


@pytest.fixture(scope="module")
def similar_scenes(tmp_path_factory: pytest.TempPathFactory) -> list[Tiles]:
    folder = tmp_path_factory.mktemp("alike")
    return [write_scene(folder / f"s{n}.zarr", shift=3 * n) for n in range(8)]


def test_similar_scenes_are_no_outliers(similar_scenes: list[Tiles]) -> None:
    assert quality_of(similar_scenes).outliers == {}


def test_a_scene_whose_offset_was_left_in_is_an_outlier_with_its_band(
    similar_scenes: list[Tiles], tmp_path: Path
) -> None:
    quality = quality_of([*similar_scenes, write_scene(tmp_path / "shifted.zarr", shift=1000)])
    assert list(quality.outliers) == ["shifted"]
    assert quality.outliers["shifted"][1] > 3


def test_a_scene_without_a_valid_pixel_neither_hides_nor_makes_an_outlier(
    similar_scenes: list[Tiles], tmp_path: Path
) -> None:
    quality = quality_of(
        [
            *similar_scenes,
            write_scene(tmp_path / "dark.zarr", valid=0),
            write_scene(tmp_path / "shifted.zarr", shift=1000),
        ]
    )
    assert list(quality.outliers) == ["shifted"]
    assert [band.shares[8].sum() for band in quality.bands] == [0, 0]


def test_histograms_are_of_valid_pixels_in_physical_units(similar_scenes: list[Tiles]) -> None:
    for band in quality_of(similar_scenes).bands:
        np.testing.assert_allclose(band.shares.sum(1), 1)
        assert 0.06 < band.low < 0.1 < band.high < 0.14


@settings(max_examples=50)
@given(samples=st.lists(st.lists(st.integers(-9, 9).map(lambda n: n / 4), max_size=12), min_size=1, max_size=5))
def test_distances_to_the_pool_are_those_of_scipy(samples: list[list[float]]) -> None:
    arrays = [np.array(sample, float) for sample in samples]
    pooled = np.concatenate(arrays)
    if not pooled.size:
        return
    expected = [wasserstein_distance(sample, pooled) if sample.size else np.nan for sample in arrays]
    np.testing.assert_allclose(distances(arrays), expected, atol=1e-12)


def test_histograms_are_in_the_order_of_dates_and_outliers_are_highlighted(
    similar_scenes: list[Tiles], tmp_path: Path
) -> None:
    quality = quality_of([*similar_scenes, write_scene(tmp_path / "shifted.zarr", shift=1000)])
    drawn = str(ridge_chart(quality.bands[0], quality.scenes, set(quality.outliers)))
    assert [drawn.index(f">2023-08-{day:02}<") for day in range(1, 10)] == sorted(
        drawn.index(f">2023-08-{day:02}<") for day in range(1, 10)
    )
    highlight = CSS_COLORS[TWO]
    assert re.findall(rf"<text[^>]*fill: {re.escape(highlight)}[^>]*>([^<]*)", drawn) == ["2023-08-09"]
    histograms = re.findall(r'<path d="[^"]*z " style="fill: (var[^;]*); fill-opacity', drawn)
    assert [color == highlight for color in histograms] == [False] * 8 + [True], "one histogram is highlighted"


def test_of_many_scenes_sixty_are_summarised_and_the_others_are_counted(similar_scenes: list[Tiles]) -> None:
    stores = [similar_scenes[n % 8] for n in range(MAX_SCENES + 7)]
    quality = read_quality(stores, {})
    assert (len(quality.scenes), quality.omitted) == (MAX_SCENES, 7)


FATES = [{"scene": "s0", "samples": 3, "unlabelled": 4, "unusable": 1, "spare": 2}]


def test_the_page_counts_all_chips_by_what_became_of_them() -> None:
    rows = data_tables.chip_rows(made_split(fates=FATES * 2))
    counts = {reason.split(" (")[0]: (number, share.replace("\u202f", " ")) for reason, number, share in rows}
    assert counts == {
        "in a split": ("6", "30.0 %"),
        "without labels": ("8", "40.0 %"),
        "too few usable pixels": ("2", "10.0 %"),
        "in no split": ("4", "20.0 %"),
    }


def test_the_table_shows_what_preprocess_measured(similar_scenes: list[Tiles]) -> None:
    item = {"id": "s0", "properties": {"datetime": "2023-08-01T10:00:00Z", "eo:cloud_cover": 12.34}}
    rows = data_tables.scene_rows(
        [item],
        similar_scenes[:2],
        {"s1": ("nir", 2.5)},
        made_split(fates=FATES),
    )
    cells = {row[0]: [cell.replace("\u202f", " ") for cell in row[1:]] for row in rows}
    assert cells["s0"] == ["2023-08-01", "12.3 %", "25.0 %", "12.5 %", "0.0 %", "100.0 %", "3", ""]
    assert cells["s1"][-1] == "outlier: nir by 2.5 IQR"


def test_citations_and_credits_are_listed_once() -> None:
    cited: dict[str, Any] = {"sci:citation": "Somebody (2021)", "sci:doi": "10.1/x", "attribution": "By all"}
    items = [{"properties": cited | {"providers": [{"name": "ESA"}, "broken"]}} for _ in range(3)]
    assert data_tables.citations(items) == [data_tables.LinkedText("Somebody (2021)", "https://doi.org/10.1/x")]
    assert data_tables.credit_lines(items) == ["By all", "ESA"]
