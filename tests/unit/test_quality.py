"""What the page says of the data: scenes unlike the rest, histograms by date, thumbnails, citations."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox

from eopipe.reporting import data_tables as facts
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.figures import CSS_COLORS, TWO
from eopipe.reporting.quality import MOST_SCENES, Quality, distance, read_quality
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles, add_array, new_store

GRID = GeoBox((64, 64), Affine(10, 0, 500000, 0, -10, 5000000), "EPSG:32633")


def write_scene(path: Path, shift: float = 0, *, valid: float = 1, bands: tuple[str, ...] = ("red", "nir")) -> Tiles:
    random = np.random.default_rng(len(path.name) + sum(map(ord, path.name)))
    image = random.normal(1000 + shift, 100, (len(bands), *GRID.shape)).round().astype(np.uint16)
    good = (random.random(GRID.shape) < valid).astype(np.uint8)
    facts_ = {"valid_fraction": float(good.mean()), "quality": {"nodata": 0.25, "masked": 0.125, "saturated": 0.0}}
    with new_store(path, GRID, bands, path.stem, facts_) as group:
        scale = {"scale_factor": 1e-4, "add_offset": 0.0}
        add_array(group, "image", image.shape, "uint16", Layout(16, 64), **scale)[:] = image
        add_array(group, "valid", good.shape, "uint8", Layout(16, 64))[:] = good
    return Tiles(path)


def look(stores: list[Tiles]) -> Quality:
    days = {store.scene: f"2023-08-{n + 1:02}" for n, store in enumerate(stores)}
    return read_quality([(store, store) for store in stores], days)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> list[Tiles]:
    folder = tmp_path_factory.mktemp("alike")
    return [write_scene(folder / f"s{n}.zarr", shift=3 * n) for n in range(8)]


def test_scenes_that_are_alike_are_not_marked(alike: list[Tiles]) -> None:
    assert look(alike).drifted == {}


def test_a_scene_whose_offset_was_left_in_is_marked_with_its_band(alike: list[Tiles], tmp_path: Path) -> None:
    found = look([*alike, write_scene(tmp_path / "odd.zarr", shift=1000)])
    assert list(found.drifted) == ["odd"]
    assert found.drifted["odd"][1] > 3


def test_a_scene_without_a_valid_pixel_neither_hides_nor_makes_drift(alike: list[Tiles], tmp_path: Path) -> None:
    found = look([*alike, write_scene(tmp_path / "dark.zarr", valid=0), write_scene(tmp_path / "odd.zarr", shift=1000)])
    assert list(found.drifted) == ["odd"]
    assert [band.shares[8].sum() for band in found.bands] == [0, 0]


def test_histograms_are_of_valid_pixels_in_physical_units(alike: list[Tiles]) -> None:
    for band in look(alike).bands:
        np.testing.assert_allclose(band.shares.sum(1), 1)
        assert 0.06 < band.low < 0.1 < band.high < 0.14


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.floats(-5, 5), min_size=1, max_size=30), shift=st.floats(-3, 3), scale=st.floats(0.1, 4))
def test_the_distance_of_a_shifted_copy_is_its_shift(values: list[float], shift: float, scale: float) -> None:
    one = np.array(values)
    assert distance(one, one + shift) == pytest.approx(abs(shift), abs=1e-9)
    assert distance(one * scale, (one + shift) * scale) == pytest.approx(abs(shift) * scale, abs=1e-9)


def test_hills_stand_in_the_order_of_dates_and_the_odd_one_is_marked(alike: list[Tiles], tmp_path: Path) -> None:
    found = look([*alike, write_scene(tmp_path / "odd.zarr", shift=1000)])
    drawn = str(ridge_chart(found.bands[0], found.looks, set(found.drifted)))
    assert [drawn.index(f">2023-08-{day:02}<") for day in range(1, 10)] == sorted(
        drawn.index(f">2023-08-{day:02}<") for day in range(1, 10)
    )
    marked = CSS_COLORS[TWO]
    assert re.findall(rf"<text[^>]*fill: {re.escape(marked)}[^>]*>([^<]*)", drawn) == ["2023-08-09"]
    hills = re.findall(r'<path d="[^"]*z " style="fill: (var[^;]*); fill-opacity', drawn)
    assert [color == marked for color in hills] == [False] * 8 + [True], "one hill stands out"


def test_of_many_scenes_sixty_are_looked_at_and_the_rest_is_counted(alike: list[Tiles]) -> None:
    many = [alike[n % 8] for n in range(MOST_SCENES + 7)]
    found = read_quality([(store, store) for store in many], {})
    assert (len(found.looks), found.left_out) == (MOST_SCENES, 7)


FATES = {"fates": [{"scene": "s0", "samples": 3, "unlabelled": 4, "unusable": 1, "spare": 2}]}


def test_the_page_tells_what_became_of_all_chips() -> None:
    rows = facts.fate_rows({"fates": FATES["fates"] * 2})
    told = {words.split(" (")[0]: (number, share.replace("\u202f", " ")) for words, number, share in rows}
    assert told == {
        "in a split": ("6", "30.0 %"),
        "without labels": ("8", "40.0 %"),
        "too few usable pixels": ("2", "10.0 %"),
        "in no split": ("4", "20.0 %"),
    }


def test_the_table_tells_what_preprocess_measured(alike: list[Tiles]) -> None:
    item = {"id": "s0", "properties": {"datetime": "2023-08-01T10:00:00Z", "eo:cloud_cover": 12.34}}
    rows = facts.scene_rows([item], [(alike[0], alike[0]), (alike[1], alike[1])], {"s1": ("nir", 2.5)}, FATES)
    told = {row[0]: [cell.replace("\u202f", " ") for cell in row[1:]] for row in rows}
    assert told["s0"] == ["2023-08-01", "12.3 %", "25.0 %", "12.5 %", "0.0 %", "100.0 %", "3", ""]
    assert told["s1"][-1] == "unlike the rest: nir by 2.5 quartile ranges"


def test_citations_and_credits_are_told_once() -> None:
    cited: dict[str, Any] = {"sci:citation": "Somebody (2021)", "sci:doi": "10.1/x", "attribution": "By all"}
    items = [{"properties": cited | {"providers": [{"name": "ESA"}, "broken"]}} for _ in range(3)]
    assert facts.citations(items) == [facts.Licence("Somebody (2021)", "https://doi.org/10.1/x")]
    assert facts.credits_of(items) == ["By all", "ESA"]
