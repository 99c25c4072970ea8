"""A composite is what numpy computes from whole arrays, whatever the windows, in bounded memory."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, get_args

import builders
import numpy as np
import pytest
from builders import grid_of
from hypothesis import given
from hypothesis import strategies as st
from scenery import Run

from eopipe.composites.periods import (
    CompositeMethod,
    CompositeRecipe,
    Period,
    day_of,
    part_of,
    period_of,
    read_observations,
    rescale,
    stack_conflict,
)
from eopipe.composites.write import block_edge, greenness_rank, layout_of, median, write_composite
from eopipe.config import check
from eopipe.errors import BadInputError, UsageError
from eopipe.inspection.tiles_command import find_errors
from eopipe.publish import verify
from eopipe.scenes.products import true_colour_bands
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

BANDS = ("blue", "red", "nir")
BANDS_AND_GREEN = (*BANDS, "green")
LAYOUT = Layout(16, 48)
DATES = ("2017-12-20", "2018-01-10", "2018-06-03", "2018-07-14", "2018-07-20", "2018-08-30", "2019-07-01")


def write_store(
    path: Path,
    scene: str,
    day: str | None,
    pixels: np.ndarray,
    valid: np.ndarray,
    *,
    names: tuple[str, ...] = BANDS,
    left: float = 500000.0,
    scale: float = 1e-4,
    offset: float = -0.1,
    **options: Any,
) -> Path:
    options = {"scene": scene, "scaling": (scale, offset), "datetime": day and f"{day}T10:00:00Z", **options}
    grid = grid_of(valid.shape, left=left)
    return builders.write_store(path, names, {"image": pixels, "valid": valid}, grid, **{"layout": LAYOUT} | options)


@dataclass
class Series:
    """Stores of many dates, and their content."""

    paths: tuple[Path, ...]
    pixels: np.ndarray
    valid: np.ndarray

    def values(self, *numbers: int) -> np.ndarray:
        """Pixels (date, band, y, x) as float with NaN where not valid."""
        dates = list(numbers) or list(range(len(self.pixels)))
        return np.where(self.valid[dates][:, None], self.pixels[dates].astype(np.float64), np.nan)


def make_series(folder: Path, dates: tuple[str, ...] = DATES, dtype: str = "uint16", size: int = 75) -> Series:
    random = np.random.default_rng(7)
    shape = (len(dates), len(BANDS), size, size - 15)
    pixels = random.integers(0, 12_000, shape).astype(dtype)
    if dtype.startswith("f"):
        pixels += random.random(shape).astype(dtype)
    valid = random.random((shape[0], *shape[2:])) < 0.4
    pixels = np.where(valid[:, None], pixels, 0).astype(dtype)
    paths = [
        write_store(folder / f"{n}.zarr", f"s{n}", day, pixels[n], valid[n].astype("uint8"))
        for n, day in enumerate(dates)
    ]
    return Series(tuple(paths), pixels, valid)


def compose(
    target: Path, source: Series | Iterable[Path], recipe: CompositeRecipe, *numbers: int, budget: int = 1 << 26
) -> Tiles:
    """The composite of some stores, or of the dates of a series with these numbers."""
    paths = tuple(source.paths if isinstance(source, Series) else source)
    paths = tuple(paths[number] for number in numbers) or paths
    write_composite(target, read_observations(paths, recipe), recipe, budget)
    verify(target)
    return Tiles(target)


def nanmedian(values: np.ndarray) -> np.ndarray:
    valid = np.isfinite(values).any(0)
    return np.where(valid, np.nanmedian(np.where(valid, values, 0), axis=0), 0)


def test_a_composite_skips_scenes_that_were_left_out(tmp_path: Path) -> None:
    series, nothing = make_series(tmp_path, DATES[2:6]), np.zeros((75, 60), "uint8")
    # The first by date, of a type and a scale of its own, as preprocess writes it.
    image, day = np.zeros((len(BANDS), *nothing.shape), "uint8"), "2018-06-01"
    unscaled = {"scale": 1.0, "offset": 0.0, "left_out": {"bad": "asset red is XML"}}
    bad = write_store(tmp_path / "bad.zarr", "bad", day, image, nothing, **unscaled)
    sources = {"good": series.paths, "both": (bad, *series.paths), "bad-only": (bad,)}
    recipe = CompositeRecipe("median")
    good, both, bad_only = (compose(tmp_path / name, paths, recipe) for name, paths in sources.items())
    assert [error for tiles in (good, both, bad_only) for error in find_errors(tiles)] == []
    for array in ("image", "valid", "count"):
        np.testing.assert_array_equal(both.read(array), good.read(array))
    assert both.attributes == good.attributes | {"left_out": {"bad": "asset red is XML"}}
    assert both.scaling == good.scaling
    assert not bad_only.read("valid").any()


def test_a_part_of_which_all_scenes_were_left_out_is_a_part_without_observations(tmp_path: Path) -> None:
    series, shape = make_series(tmp_path, ("2018-04-01", "2018-07-01", "2018-10-01")), (75, 60)
    image, nothing = np.zeros((len(BANDS), *shape), "uint8"), np.zeros(shape, "uint8")
    left_out = {"scale": 1.0, "offset": 0.0, "left_out": {"bad": "asset red is XML"}}
    bad = write_store(tmp_path / "bad.zarr", "bad", "2018-01-10", image, nothing, **left_out)
    recipe = CompositeRecipe("median", "year", "season", ("DJF", "MAM", "JJA", "SON"))
    composite = compose(tmp_path / "2018.zarr", (bad, *series.paths), recipe)
    np.testing.assert_array_equal(composite.read("valid"), series.valid.sum(0) >= 2)
    expected = np.where(composite.read("valid"), np.rint(nanmedian(series.values())), 0)
    np.testing.assert_array_equal(composite.read("image")[: len(BANDS)], expected)


@pytest.mark.parametrize("budget", [1 << 26, 60_000, 1])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.exhaustive
def test_the_median_is_that_of_numpy_on_whole_arrays_whatever_the_windows(
    tmp_path: Path, dtype: str, budget: int
) -> None:
    series = make_series(tmp_path, dtype=dtype)
    composite = compose(tmp_path / "all.zarr", series, CompositeRecipe("median"), budget=budget)
    expected = nanmedian(series.values())
    image = composite.read("image")
    assert image.dtype == dtype
    if dtype == "float32":
        np.testing.assert_array_equal(image, nanmedian(series.values().astype(np.float32)).astype(dtype))
    else:
        np.testing.assert_array_equal(image, np.rint(expected))
    np.testing.assert_array_equal(composite.read("count"), series.valid.sum(0))
    np.testing.assert_array_equal(composite.read("valid"), series.valid.any(0))
    assert (image[:, composite.read("valid") == 0] == 0).all()


def test_blocks_are_whole_chunks_where_the_budget_allows_and_never_more_than_a_shard(tmp_path: Path) -> None:
    observations = read_observations(make_series(tmp_path).paths, CompositeRecipe("median"))
    edges = [block_edge(observations, Layout(16, 48), budget) for budget in (1 << 26, 250_000, 60_000, 1)]
    assert edges == [48, 32, 16, 8]


@given(
    count=st.integers(1, 20),
    dtype=st.sampled_from(["uint8", "uint16", "int16", "int32", "float32"]),
    seed=st.integers(0, 9999),
)
def test_the_median_of_any_stack_is_that_of_numpy(count: int, dtype: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    top = 9.0 if dtype == "float32" else np.iinfo(dtype).max
    stack = (random.random((count, 2, 3, 4)) * top).astype(dtype)
    valid = random.random((count, 3, 4)) < random.random()
    values = np.where(valid[:, None], stack.astype(np.float32 if dtype == "float32" else np.float64), np.nan)
    expected = nanmedian(values)
    medians = np.where(valid.any(0), median(stack.copy(), valid), 0)
    np.testing.assert_array_equal(medians, (expected if dtype == "float32" else np.rint(expected)).astype(dtype))


PHYSICAL = {
    "middle": lambda pixels: np.abs(np.arange(len(DATES)) - 3)[:, None, None] + np.zeros(pixels.shape[2:]),
    "clearest": lambda pixels: pixels[:, 0],
    "greenest": lambda pixels: greenness_rank(pixels[:, 1], pixels[:, 2]),
}


@pytest.mark.parametrize("method", PHYSICAL)
def test_one_observation_gives_all_bands_of_a_pixel(tmp_path: Path, method: Any) -> None:
    days = tuple(str(date(2018, 7, 1) + timedelta(days=5 * n)) for n in range(len(DATES)))
    series = make_series(tmp_path, dates=days)
    composite = compose(tmp_path / "made.zarr", series, CompositeRecipe(method))
    rank = PHYSICAL[method](series.pixels.astype(np.float32) * np.float32(1e-4) - np.float32(0.1))
    rank = np.where(series.valid, rank, np.inf)
    valid = series.valid.any(0)
    image = composite.read("image").astype(int)
    # The pixel of all bands is one of the dates', and no valid date ranks better.
    same = (series.pixels == image[None]).all(1) & series.valid
    assert same.any(0)[valid].all()
    best = np.take_along_axis(rank, same.argmax(0)[None], 0)[0]
    np.testing.assert_array_equal(best[valid], rank.min(0)[valid])


def test_the_greenest_pixel_has_the_highest_ndvi_of_its_valid_dates(tmp_path: Path) -> None:
    pixels = np.full((3, 3, 16, 16), 3000, "uint16")
    pixels[1, 2], pixels[2, 2] = 9000, 9500
    valid = np.ones((3, 16, 16), "uint8")
    valid[2, :8] = 0
    paths = [
        write_store(tmp_path / f"{n}.zarr", f"s{n}", f"2018-07-0{n + 1}", pixels[n], valid[n], scale=1.0)
        for n in range(3)
    ]
    image = compose(tmp_path / "g.zarr", paths, CompositeRecipe("greenest")).read("image")
    assert (image[2, :8] == 9000).all()
    assert (image[2, 8:] == 9500).all()


# Reflectances of red and near infrared, the greener first: D6 of the review, and what a dark pixel must not beat.
VEGETATION, SHADOW = (0.03, 0.45), (-0.004, 0.006)
GREENER = [
    (VEGETATION, SHADOW),
    (VEGETATION, (0.0, 0.006)),
    (VEGETATION, (-0.05, 0.08)),
    (VEGETATION, (0.002, 0.06)),
    (VEGETATION, (-0.02, -0.03)),
    ((0.02, 0.17), (-0.004, 0.05)),
    ((0.03, 0.12), (0.5, 0.52)),
    ((0.05, 0.05), (-0.01, -0.01)),
    ((0.02, 0.35), (0.04, 0.6)),
]


@pytest.mark.parametrize(("greener", "other"), GREENER)
def test_a_dark_or_negative_pixel_is_never_greener_than_vegetation(
    tmp_path: Path, greener: tuple[float, float], other: tuple[float, float]
) -> None:
    valid, paths = np.ones((16, 16), "uint8"), []
    for n, (red, nir) in enumerate((other, greener)):
        pixels = np.empty((3, 16, 16), "uint16")
        pixels[0], pixels[1], pixels[2] = 1500, round(red * 1e4) + 1000, round(nir * 1e4) + 1000
        paths.append(write_store(tmp_path / f"{n}.zarr", f"s{n}", f"2023-07-0{n + 1}", pixels, valid))
    image = compose(tmp_path / "g.zarr", paths, CompositeRecipe("greenest")).read("image")
    assert (image[2] == round(greener[1] * 1e4) + 1000).all()


@pytest.mark.parametrize("method", ["median", "middle", "greenest", "clearest"])
def test_scenes_before_and_after_the_offset_of_sentinel_2_are_composited_as_if_they_had_one_offset(
    tmp_path: Path, method: Any, caplog: pytest.LogCaptureFixture
) -> None:
    random = np.random.default_rng(5)
    reflectance = random.integers(0, 9000, (5, 3, 16, 16))
    valid = (random.random((5, 16, 16)) < 0.7).astype("uint8")
    stores: dict[str, list[Path]] = {"mixed": [], "new": []}
    for n in range(5):
        day, new = f"202{n // 3 + 1}-07-0{n + 1}", (reflectance[n] + 1000).astype("uint16")
        stores["new"].append(write_store(tmp_path / f"new{n}.zarr", f"s{n}", day, new, valid[n]))
        old = reflectance[n].astype("uint16")
        path = write_store(tmp_path / f"old{n}.zarr", f"s{n}", day, old, valid[n], offset=0.0)
        stores["mixed"].append(path if n < 3 else stores["new"][-1])
    caplog.set_level("INFO")
    recipe = CompositeRecipe(method)
    mixed, new_only = (compose(tmp_path / f"{name}.zarr", paths, recipe) for name, paths in stores.items())
    assert mixed.scaling == new_only.scaling == (1e-4, -0.1)
    np.testing.assert_array_equal(mixed.read("image"), new_only.read("image"))
    assert caplog.text.count("event=one_scale scale=0.0001 offset=-0.1 converted_from='0.0001 and 0'") == 1


def test_numbers_of_another_scale_are_rounded_to_half_a_stored_number() -> None:
    stored = np.arange(0, 65536, 7, dtype="uint16")
    landsat, sentinel = (2.75e-5, -0.2), (1e-4, -0.3)
    physical = stored * landsat[0] + landsat[1]
    error = np.abs(rescale(stored, landsat, sentinel) * sentinel[0] + sentinel[1] - physical)
    assert error.max() <= 0.5e-4 * (1 + 1e-9)
    np.testing.assert_array_equal(rescale(stored, sentinel, sentinel), stored)
    assert rescale(np.array([65535], "uint16"), (1e-4, 0.0), (1e-4, -0.1))[0] == 65535
    values = rescale(np.array([0.25], "float32"), (1.0, 0.5), (0.5, 0.0))
    assert (values.dtype, values[0]) == (np.float32, 1.5)


def test_of_equal_observations_the_earliest_is_chosen_whatever_the_order_of_the_inputs(tmp_path: Path) -> None:
    valid = np.ones((16, 16), "uint8")
    for n, day in ((1, "2018-07-09"), (2, "2018-07-01")):
        write_store(tmp_path / f"{n}.zarr", f"s{n}", day, np.full((3, 16, 16), n, "uint16"), valid)
    for n, order in enumerate(((1, 2), (2, 1))):
        paths = (tmp_path / f"{number}.zarr" for number in order)
        composite = compose(tmp_path / f"c{n}.zarr", paths, CompositeRecipe("middle"))
        assert (composite.read("image") == 2).all()
    assert (tmp_path / "c0.zarr/manifest.json").read_bytes() == (tmp_path / "c1.zarr/manifest.json").read_bytes()


def test_seasons_of_a_year_become_separate_bands(tmp_path: Path) -> None:
    series = make_series(tmp_path)
    recipe = CompositeRecipe("median", "year", "season", gaps="invalid")
    year = compose(tmp_path / "2018.zarr", series, recipe, 0, 1, 2, 3, 4, 5)
    assert year.scene == "2018"
    assert year.names == ("blue_DJF", "red_DJF", "nir_DJF", "blue_JJA", "red_JJA", "nir_JJA")
    both = series.valid[:2].any(0) & series.valid[2:6].any(0)
    np.testing.assert_array_equal(year.read("valid"), both)
    expected = np.concatenate([np.rint(nanmedian(series.values(0, 1))), np.rint(nanmedian(series.values(2, 3, 4, 5)))])
    np.testing.assert_array_equal(year.read("image"), np.where(both, expected, 0))
    fewest = np.minimum(series.valid[:2].sum(0), series.valid[2:6].sum(0))
    np.testing.assert_array_equal(year.read("count"), np.where(both, fewest, 0))
    assert year.physical(("red_JJA",)).shape == (1, 75, 60)


def test_a_month_without_an_observation_is_filled_with_the_median_of_the_others_where_half_of_them_have_one(
    tmp_path: Path,
) -> None:
    series = make_series(tmp_path)
    # Two dates in July, one in each of three other months.
    months = {"01": (1,), "06": (2,), "07": (3, 4, 6), "08": (5,)}
    recipe = CompositeRecipe("median", "all", "month", tuple(months))
    filled = compose(tmp_path / "filled.zarr", series, recipe, budget=60_000)
    observed = np.stack([series.valid[list(dates)].any(0) for dates in months.values()])
    images = np.stack([np.rint(nanmedian(series.values(*dates))) for dates in months.values()])
    others = np.rint(nanmedian(np.where(observed[:, None], images, np.nan)))
    expected = np.where(observed[:, None], images, others).reshape(-1, *series.valid.shape[1:])
    usable = observed.sum(0) >= 2
    assert 0.1 < (usable & ~observed.all(0)).mean() < 0.9, "both cases are there"
    np.testing.assert_array_equal(filled.read("valid"), usable)
    np.testing.assert_array_equal(filled.read("image"), np.where(usable, expected, 0))
    counts = np.stack([series.valid[list(dates)].sum(0) for dates in months.values()]).astype(float)
    fewest = np.where(usable, np.where(observed, counts, np.inf).min(0), 0)
    np.testing.assert_array_equal(filled.read("count"), fewest)
    assert find_errors(filled) == []


def test_a_year_without_an_observation_is_never_filled_which_would_hide_a_change(tmp_path: Path) -> None:
    series = make_series(tmp_path)
    years = compose(tmp_path / "years.zarr", series, CompositeRecipe("median", "all", "year", ("2018", "2019")))
    both = series.valid[1:6].any(0) & series.valid[6]
    np.testing.assert_array_equal(years.read("valid"), both)


def test_only_the_given_parts_are_stacked_in_that_order(tmp_path: Path) -> None:
    series = make_series(tmp_path)
    recipe = CompositeRecipe("median", "all", "month", ("07", "06"))
    composite = compose(tmp_path / "all.zarr", series, recipe)
    assert composite.names[::3] == ("blue_07", "blue_06")
    assert composite.attributes["scenes"] == ["s3", "s4", "s6", "s2"]
    with pytest.raises(BadInputError, match=r"period all has no scene in 03; it has scenes in 12, 01, 06, 07, 08"):
        read_observations(series.paths, CompositeRecipe("median", "all", "month", ("03", "07")))


def test_a_composite_names_its_scenes_and_period(tmp_path: Path) -> None:
    composite = compose(tmp_path / "2018-JJA.zarr", make_series(tmp_path), CompositeRecipe("median", "season"), 2, 3, 5)
    attributes = composite.attributes
    assert (composite.scene, composite.names, composite.scaling) == ("2018-JJA", BANDS, (1e-4, -0.1))
    assert attributes["scenes"] == ["s2", "s3", "s5"]
    assert attributes["datetime"] == "2018-07-16T00:00:00Z"
    assert attributes["start_datetime"] == "2018-06-03T00:00:00Z"
    assert attributes["end_datetime"] == "2018-08-30T00:00:00Z"
    assert attributes["valid_fraction"] == pytest.approx(composite.read("valid").mean(), abs=1e-6)
    assert layout_of(composite) == Layout(16, 48)
    assert sum(path.is_file() for path in composite.path.rglob("*")) == 3 * Layout(16, 48).files((75, 60)) + 13
    assert find_errors(composite) == []


def test_a_pixel_without_observation_is_not_valid_and_raises_no_warning(tmp_path: Path) -> None:
    valid = np.zeros((16, 16), "uint8")
    pixels = np.full((3, 16, 16), 9, "uint16")
    paths = [write_store(tmp_path / f"{n}.zarr", f"s{n}", "2018-07-01", pixels, valid) for n in range(2)]
    for method in get_args(CompositeMethod)[1:]:
        composite = compose(tmp_path / f"{method}.zarr", paths, CompositeRecipe(method))
        assert not composite.read("valid").any()
        assert not composite.read("image").any()


def test_stores_that_do_not_match_are_all_named_with_their_differences(tmp_path: Path) -> None:
    pixels, valid = np.ones((3, 16, 16), "uint16"), np.ones((16, 16), "uint8")
    stores: dict[str, dict[str, Any]] = {
        "moved": {"left": 500010.0},
        "scaled": {"scale": 1.0, "offset": 0.0},
        "typed": {"pixels": pixels.astype("int16")},
        "named": {"names": ("blue", "green", "nir")},
        "undated": {"day": None},
        "first": {"day": "2018-07-01"},
    }
    for name, changes in stores.items():
        fields = {"day": "2018-07-02", "pixels": pixels, "valid": valid} | changes
        write_store(tmp_path / f"{name}.zarr", name, **fields)

    def error_of(*names: str, method: Any = "median") -> str:
        with pytest.raises(BadInputError) as caught:
            read_observations(tuple(tmp_path / f"{name}.zarr" for name in names), CompositeRecipe(method))
        return str(caught.value)

    error = error_of("first", "moved", "scaled", "typed", "named")
    assert "moved.zarr has another grid" in error
    assert "scaled.zarr has scale and offset (1.0, 0.0) instead of (0.0001, -0.1)" in error
    assert "typed.zarr has data type int16 instead of uint16" in error
    assert "named.zarr has bands" in error
    assert "scene first is given twice" in error_of("first", "first")
    assert "greenest needs band red; there are blue, green, nir" in error_of("named", method="greenest")
    assert "undated.zarr has no date (nothing)" in error_of("undated")


def test_scenes_of_two_periods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"the scenes are of 3 periods \(2018-DJF, 2018-JJA, 2019-JJA\)"):
        read_observations(make_series(tmp_path, size=20).paths, CompositeRecipe("median", "season"))


@pytest.mark.parametrize(
    ("day", "kind", "stack", "expected"),
    [
        ("2017-12-31", "season", "none", Period("2018-DJF", date(2017, 12, 1), date(2018, 2, 28))),
        ("2020-02-29", "season", "none", Period("2020-DJF", date(2019, 12, 1), date(2020, 2, 29))),
        ("2018-11-30", "season", "month", Period("2018-SON", date(2018, 9, 1), date(2018, 11, 30))),
        ("2017-12-01", "year", "none", Period("2017", date(2017, 1, 1), date(2017, 12, 31))),
        ("2017-12-01", "year", "season", Period("2018", date(2017, 12, 1), date(2018, 11, 30))),
        ("2017-12-01", "year", "month", Period("2017", date(2017, 1, 1), date(2017, 12, 31))),
        ("2018-12-05", "month", "none", Period("2018-12", date(2018, 12, 1), date(2018, 12, 31))),
        ("2018-12-05", "all", "season", Period("all")),
    ],
)
def test_a_day_belongs_to_its_period(day: str, kind: Any, stack: str, expected: Period) -> None:
    assert period_of(date.fromisoformat(day), kind, stack) == expected


def test_a_scene_of_an_interval_belongs_to_the_period_of_its_middle() -> None:
    interval = {"datetime": None, "start_datetime": "2019-11-20T00:00:00Z", "end_datetime": "2019-12-20T00:00:00Z"}
    assert day_of(interval, "s") == date(2019, 12, 5)
    assert day_of({"datetime": "2019-11-20T23:30:00Z"}, "s") == date(2019, 11, 20)
    with pytest.raises(BadInputError, match=r"s has no date \(nothing\)"):
        day_of({"datetime": None, "start_datetime": "2019-11-20T00:00:00Z"}, "s")


@given(day=st.dates(date(1972, 7, 23), date(2099, 11, 30)), kind=st.sampled_from(["year", "season", "month"]))
def test_every_day_is_in_its_period_and_periods_follow_each_other(day: date, kind: Any) -> None:
    period = period_of(day, kind)
    assert period.first is not None
    assert period.last is not None
    assert period.first <= day <= period.last
    assert period_of(period.first, kind) == period_of(period.last, kind) == period
    assert period_of(period.last + timedelta(days=1), kind).first == period.last + timedelta(days=1)


def test_the_parts_of_a_day() -> None:
    days = [date(2018, month, 3) for month in (12, 2, 3, 8, 11)]
    assert [part_of(day, "season") for day in days] == ["DJF", "DJF", "MAM", "JJA", "SON"]
    assert [part_of(day, "month") for day in days] == ["12", "02", "03", "08", "11"]
    assert {part_of(day, "none") for day in days} == {""}


def test_parts_must_be_shorter_than_their_period() -> None:
    assert stack_conflict("year", "season", ("DJF",)) == ""
    assert stack_conflict("all", "month") == stack_conflict("all", "none") == ""
    assert "month is not shorter than composite.period month" in stack_conflict("month", "month")
    assert "season is not shorter than composite.period season" in stack_conflict("season", "season")
    assert "has 13, but the months are 01, 02" in stack_conflict("year", "month", ("13",))
    assert "composite.stack is none" in stack_conflict("year", "none", ("JJA",))
    with pytest.raises(UsageError, match="not shorter than"):
        CompositeRecipe("median", "month", "season")
    with pytest.raises(UsageError, match="needs a --method"):
        CompositeRecipe("none")


def test_the_config_says_what_a_composite_cannot_go_with() -> None:
    asset = {"label": {"asset": "scl", "classes": ["a", "b"]}, "search": {"catalog": "c"}}
    with pytest.raises(UsageError, match=r"composite\.method median .* label\.asset scl"):
        check({**asset, "composite": {"method": "median"}})
    source = {"label": {"source": "l.tif", "classes": ["a", "b"]}, "search": {"catalog": "c"}}
    with pytest.raises(UsageError, match=r"composite\.stack season .* composite\.period season"):
        check({**source, "composite": {"method": "median", "period": "season", "stack": "season"}})
    with pytest.raises(UsageError, match=r"composite\.method greenest .* red in preprocess\.bands"):
        check({**source, "composite": {"method": "greenest"}, "preprocess": {"bands": ["nir"]}})
    check({**source, "composite": {"method": "greenest", "period": "year", "stack": "month"}})
    check(asset)


def test_the_command_writes_a_composite_and_its_record_names_the_scenes(tmp_path: Path, run: Run) -> None:
    series = make_series(tmp_path, size=20)
    arguments = ("composite", "--tiles", *series.paths[2:6], "--period", "season", "--composite", tmp_path / "c.zarr")
    assert run(*arguments).code == 2
    assert run(*arguments, "--method", "median").code == 0
    assert Tiles(tmp_path / "c.zarr").scene == "2018-JJA"
    assert "2.zarr" in (tmp_path / "c.zarr.run.json").read_text()


PEAK = r"""
import re, sys
from pathlib import Path
from eopipe.composites.write import write_composite
from eopipe.composites.periods import CompositeRecipe, read_observations, rescale
recipe = CompositeRecipe("median")
observations = read_observations(tuple(map(Path, sys.argv[3:])), recipe)
observations.first.read("image", slice(0, 8), slice(0, 8))
def peak():
    # The kernel's mark of this program alone; getrusage includes the parent before the fork.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
write_composite(Path(sys.argv[1]), observations, recipe, int(sys.argv[2]))
print((peak() - before) // 1024)
"""


@pytest.mark.exhaustive
def test_memory_is_bounded_by_the_budget_and_one_shard_however_many_dates(tmp_path: Path) -> None:
    edge, layout = 1024, Layout(128, 512)
    valid = np.ones((edge, edge), "uint8")
    pixels = np.random.default_rng(0).integers(0, 9999, (3, edge, edge), "uint16")
    store = write_store(tmp_path / "0.zarr", "s00", "2018-07-01", pixels, valid, layout=layout)
    paths = [store]
    for number in range(1, 40):
        # The same pixels under another scene's name.
        path = tmp_path / f"{number}.zarr"
        path.mkdir()
        for part in ("image", "valid", "x", "y", "band", "time", "spatial_ref"):
            (path / part).symlink_to(store / part)
        metadata = (store / "zarr.json").read_text().replace('"s00"', f'"s{number:02}"')
        (path / "zarr.json").write_text(metadata)
        paths.append(path)
    # All dates of the raster are 252 MB, those of one shard 63 MB; a shard of the composite is 1.5 MB.
    arguments = [sys.executable, "-c", PEAK, tmp_path / "c.zarr", str(16 << 20), *paths]
    done = subprocess.run([str(word) for word in arguments], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40, "MB above what the process took before"
    np.testing.assert_array_equal(Tiles(tmp_path / "c.zarr").read("image"), pixels)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("blue", "green", "red", "nir"), ("red", "green", "blue")),
        (
            tuple(f"{b}_{s}" for s in ("MAM", "JJA", "SON") for b in BANDS_AND_GREEN),
            ("red_JJA", "green_JJA", "blue_JJA"),
        ),
        (("red_MAM", "red_JJA", "green_JJA", "blue_JJA"), ("red_JJA", "green_JJA", "blue_JJA")),
        # As the Planetary Computer and HLS name them.
        (("B02", "B03", "B04", "B08"), ("B04", "B03", "B02")),
        (("B02_MAM", "B03_MAM", "B04_MAM", "B8A_MAM"), ("B04_MAM", "B03_MAM", "B02_MAM")),
        (("vv", "vh"), ()),
        (("red", "nir"), ()),
    ],
)
def test_a_picture_of_stacked_seasons_has_the_true_colour_of_the_middle_one(
    names: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert true_colour_bands(names) == expected
