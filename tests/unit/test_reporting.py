"""The parts of the report: colours, decimation, outlines, lengths, wording."""

from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from PIL import Image

from eopipe.chips.splits import read_samples
from eopipe.config import check
from eopipe.errors import BadInputError, RequirementError, UsageError
from eopipe.evaluation.metrics_document import metrics_type, read_metrics
from eopipe.evaluation.requirements import check_requirements
from eopipe.reporting.charts import best_validation
from eopipe.reporting.decimation import decimate, read_centres, read_means, windows_of_stores
from eopipe.reporting.figures import DISTINCT, class_colors, difference, rgb
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED, map_panels, outline
from eopipe.reporting.rasters import MapView, Quicklook
from eopipe.reporting.scores import method_rows
from eopipe.reporting.verdict import Verdict, verdict
from eopipe.reporting.wording import baseline_text, format_length, join_words, round_length
from eopipe.run.project import summary
from eopipe.text_files import read_config, write_json
from eopipe.tiles.grid import make_grid
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import NO_LABEL, Tiles, add_array, new_store

MEANINGS = ("field", "built", "water", "forest", "orchard", "bare soil", "meadow", "snow", "cloud", "shadow", "reef")
Gains = tuple[list[float] | None, list[float] | None]


def test_names_choose_meaningful_colours_that_all_differ() -> None:
    names = ("non-forest", "forest", "woodland", "cloud shadow", "cloud", "water", *map(str, range(20)))
    colors = class_colors(names, ())
    assert len(set(colors)) == len(names)
    assert colors[1] == "#1b7a43" != colors[0]
    assert colors[4] == "#ffffff"
    assert colors[5] == "#0072b2"
    with pytest.raises(UsageError, match="1 colors for 2 classes"):
        class_colors(("a", "b"), ("#000000",))


@pytest.mark.parametrize("count", range(2, 12))
def test_colours_of_any_classes_differ_also_to_colour_blind_readers(count: int) -> None:
    colors = class_colors(tuple(f"class {n}" for n in range(count)), ())
    assert min(difference(*pair) for pair in combinations(colors, 2)) >= DISTINCT


@given(st.lists(st.sampled_from(MEANINGS), min_size=2, max_size=8, unique=True))
def test_colours_by_meaning_differ_too(names: list[str]) -> None:
    colors = class_colors(tuple(names), ())
    assert min(difference(*pair) for pair in combinations(colors, 2)) >= DISTINCT


def test_the_difference_of_colours_is_that_of_the_reader_who_sees_least_of_it() -> None:
    assert difference("#000000", "#ffffff") == pytest.approx(100, abs=0.1)
    assert difference("#b5651d", "#6b8e23") < 20 < difference("#b5651d", "#0072b2")


PIXEL, TEXTURE = "the boosted trees on bands", "the boosted trees with texture"
ALWAYS = "always predicting “a”"
FEW = "Too few pieces of the test areas are independent to rule out chance: at least 6 are needed."
UP, DOWN, AROUND = [0.02, 0.08], [-0.09, -0.02], [-0.022, 0.01]


def compared(gains: Gains, simple: Gains, baseline: tuple[float, float] = (0.86, 0.76)) -> dict[str, Any]:
    """Metrics of a model of accuracy 0.9 and mIoU 0.8, with the intervals of its gains over both baselines."""
    methods = {"model": (0.9, 0.8), "pixel_baseline": baseline, "majority": (0.88, 0.7)}
    scores = {name: of_classes(*pair) for name, pair in methods.items()}
    pairs = {"gain": gains, "simple_gain": simple}
    intervals = {key: dict(zip(("accuracy", "miou"), pair, strict=True)) for key, pair in pairs.items()}
    independent = {"gain": 204.0, "simple_gain": 1.6}
    of_all = {"classes": ["a", "b"], "maps": 1, "test_pixels": 9, "intervals": intervals | {"independent": independent}}
    return scores | of_all | {"majority": scores["majority"] | {"class": "a"}}


def of_classes(accuracy: float, miou: float) -> dict[str, Any]:
    """Scores of a method."""
    return {"accuracy": accuracy, "miou": miou, "f1_macro": None, "kappa": None, "confusion": [], "per_class": {}}


def verdict_on(document: dict[str, Any]) -> Verdict:
    """The verdict on the scores of a metrics file."""
    return verdict(metrics_type(document.get("task", "segmentation")).model_validate(document))


@pytest.mark.parametrize(("gains", "simple", "tone", "headline"), [
    ((UP, UP), (UP, UP), "good", f"The model is better than {PIXEL}, and than {ALWAYS}."),
    ((DOWN, DOWN), (DOWN, DOWN), "bad", f"The model is worse than {PIXEL}, and than {ALWAYS}."),
    ((DOWN, DOWN), (UP, UP), "bad", f"The model is worse than {PIXEL}, but is better than {ALWAYS}."),
    ((UP, UP), (DOWN, AROUND), "bad", f"The model is better than {PIXEL}, but is worse in accuracy than {ALWAYS}."),
    ((UP, None), (UP, None), "good", f"The model is better in accuracy than {PIXEL}, and than {ALWAYS}."),
    ((UP, DOWN), (UP, UP), "mixed",
     f"The model is better in accuracy but worse in mIoU than {PIXEL}, but is better than {ALWAYS}."),
    ((AROUND, AROUND), (UP, UP), "mixed",
     f"The model cannot be told apart from {PIXEL} (gain 0.040, 95 %: -0.022 to 0.010), but is better than {ALWAYS}."),
    ((DOWN, DOWN), (AROUND, AROUND), "bad",
     f"The model is worse than {PIXEL}, and cannot be told apart from {ALWAYS} (gain 0.020, 95 %: -0.022 to 0.010)."),
    ((AROUND, AROUND), (AROUND, AROUND), "mixed",
     f"The model cannot be told apart from {PIXEL} (gain 0.040, 95 %: -0.022 to 0.010), "
     f"or from {ALWAYS} (gain 0.020, 95 %: -0.022 to 0.010)."),
    ((None, AROUND), (UP, UP), "mixed",
     f"The model cannot be told apart from {PIXEL} (gain of mIoU 0.040, 95 %: -0.022 to 0.010), "
     f"but is better than {ALWAYS}."),
    ((UP, UP), (None, None), "mixed",
     f"The model is better than {PIXEL}, and is ahead of {ALWAYS} (gain 0.020 from about 1.6 independent pieces). "
     f"{FEW}"),
    ((DOWN, DOWN), (None, None), "bad",
     f"The model is worse than {PIXEL}, but is ahead of {ALWAYS} (gain 0.020 from about 1.6 independent pieces). "
     f"{FEW}"),
])  # fmt: skip
def test_the_verdict_goes_by_the_intervals_of_the_gains(gains: Gains, simple: Gains, tone: str, headline: str) -> None:
    result = verdict_on(compared(gains, simple))
    assert result.headline == headline
    assert result.tone == tone


def test_a_difference_that_may_be_chance_is_not_counted_in_errors() -> None:
    assert "% fewer errors" in verdict_on(compared((UP, UP), (UP, UP))).text
    assert "errors" not in verdict_on(compared((AROUND, UP), (UP, UP))).text


def test_equal_scores_on_each_piece_have_no_interval_of_nothing() -> None:
    document = compared(([0.0, 0.0], [0.0, 0.0]), (UP, UP), (0.9, 0.8))
    equal = f"The model cannot be told apart from {PIXEL} (gain 0.000, equal on each piece), but is better than"
    assert verdict_on(document).headline == f"{equal} {ALWAYS}."
    rows = method_rows(metrics_type("segmentation").model_validate(document))
    of_model = {row.name: [cell.note for cell in row.cells[:2]] for row in rows}
    assert of_model["Model minus boosted trees on bands"] == ["equal on each piece"] * 2


def test_a_small_but_certain_difference_is_called_slight() -> None:
    metrics = compared(([0.001, 0.007], [0.001, 0.007]), (UP, UP), (0.896, 0.796))
    assert verdict_on(metrics).headline == f"The model is slightly better than {PIXEL}, and is better than {ALWAYS}."


@pytest.mark.parametrize(("independent", "baseline", "headline"), [
    ({"gain": 4.1, "simple_gain": 1.0}, (0.86, 0.76),
     f"The model is ahead of {PIXEL} (gain 0.040 from about 4.1 independent pieces), and of {ALWAYS} "
     f"(gain 0.020 from about 1 independent piece). {FEW}"),
    ({"gain": 3.0, "simple_gain": 1.0}, (0.95, 0.9),
     f"The model is behind {PIXEL} (gain -0.050 from about 3 independent pieces), but is ahead of {ALWAYS} "
     f"(gain 0.020 from about 1 independent piece). {FEW}"),
    ({"gain": 3.0, "simple_gain": 1.0}, (0.9, 0.8),
     f"The model is level with {PIXEL} (gain 0.000 from about 3 independent pieces), but is ahead of {ALWAYS} "
     f"(gain 0.020 from about 1 independent piece). {FEW}"),
    ({}, (0.86, 0.76),
     f"The model is ahead of {PIXEL} (gain 0.040), and of {ALWAYS} (gain 0.020). This may be chance: not measured."),
])  # fmt: skip
def test_without_an_interval_the_scores_decide_nothing_and_the_reason_follows(
    independent: dict[str, float], baseline: tuple[float, float], headline: str
) -> None:
    metrics = compared((None, None), (None, None), baseline)
    metrics["intervals"] |= {"independent": independent, "reason": "not measured"}
    result = verdict_on(metrics)
    assert result.headline == headline
    assert result.tone == "mixed"
    assert "chance" not in result.text
    assert verdict_on(metrics | {"intervals": {}}).headline.endswith("be chance: the metrics have no interval.")


def with_classes(recalls: tuple[float, float, float], mapped: tuple[int, int, int], **more: Any) -> dict[str, Any]:
    """Metrics of a model that is better than both baselines, with the recall and the pixels of map of three classes."""
    metrics, names = compared((UP, UP), (UP, UP)) | more, ("a", "b", "c")
    rows = [{"iou": r, "precision": r, "recall": r, "f1": r, "pixels": 100} for r in recalls]
    metrics["model"] |= {"per_class": dict(zip(names, rows, strict=True))}
    return metrics | {"classes": [*names], "map_pixels": dict(zip(names, mapped, strict=True))}


@pytest.mark.parametrize(("recalls", "mapped", "more", "sentence"), [
    ((0.9, 0.8, 0.7), (40, 30, 30), {}, ""),
    ((0.9, 0.0, 0.7), (90, 1, 9), {}, " The map is right at no test pixel of “b”."),
    ((0.9, 0.0, 0.0), (90, 1, 9), {}, " The map is right at no test pixel of “b” or “c”."),
    ((0.9, 0.8, 0.7), (40, 30, 30), {"not_mapped": [*"defghi"]}, " The map has no pixel of “d”, “e”, “f”, “g” and 2 "
     "other classes."),
    ((0.9, 0.8, 0.7), (970, 10, 20), {}, " The map is 1.0 % “b” (33.3 % of the test labels) and 2.0 % “c” (33.3 % of "
     "the test labels)."),
    ((0.9, 0.0, 0.7), (970, 0, 30), {"not_mapped": ["b"]}, " The map has no pixel of “b”. The map is 3.0 % “c” "
     "(33.3 % of the test labels)."),
])  # fmt: skip
def test_a_class_that_is_never_right_or_hardly_mapped_is_in_the_headline_and_no_verdict_is_good(
    recalls: tuple[float, float, float], mapped: tuple[int, int, int], more: dict[str, Any], sentence: str
) -> None:
    result = verdict_on(with_classes(recalls, mapped, **more))
    assert result.headline.replace("\u202f", " ").endswith(f"{ALWAYS}.{sentence}")
    assert result.tone == ("mixed" if sentence else "good")


def test_metrics_without_the_pixels_of_the_map_are_read_and_name_what_is_never_right(tmp_path: Path) -> None:
    metrics = with_classes((0.9, 0.0, 0.7), (0, 0, 0))
    del metrics["map_pixels"]
    write_json(tmp_path / "metrics.json", metrics)
    assert verdict(read_metrics(tmp_path / "metrics.json")).headline.endswith(" is right at no test pixel of “b”.")
    assert summary(str(tmp_path)).startswith("\nScores on the test split.")
    assert "The map is right at no test pixel of “b”." in summary(str(tmp_path))


def test_the_model_is_compared_with_the_chosen_baseline_even_where_another_is_better_in_the_test_places() -> None:
    metrics = compared((UP, UP), (UP, UP)) | {"linear": of_classes(0.87, 0.77), "extra_trees": of_classes(0.95, 0.9)}
    result = verdict_on(metrics | {"baseline": {"name": "linear", "by": "mIoU on 700 pixels"}})
    assert result.headline == f"The model is better than the linear model on bands, and than {ALWAYS}."
    assert "extra trees" not in result.headline + result.text
    assert "the linear model on bands for 87.0" in result.text


def test_the_baseline_of_an_older_run_is_the_one_with_texture_and_its_own_gain() -> None:
    metrics = compared((UP, UP), (UP, UP)) | {"texture_baseline": of_classes(0.85, 0.75)}
    metrics["intervals"]["texture_gain"] = {"accuracy": DOWN, "miou": DOWN}
    assert verdict_on(metrics).headline == f"The model is worse than {TEXTURE}, but is better than {ALWAYS}."
    read = metrics_type("segmentation").model_validate(metrics)
    assert read.gains("pixel_baseline") == {"accuracy": UP, "miou": UP}
    assert baseline_text(read) == ""


def test_a_baseline_that_was_left_out_is_named_with_the_reason() -> None:
    choice = {"name": "pixel_baseline", "by": "mIoU", "left_out": {"texture_baseline": "more than 100 features"}}
    read = metrics_type("segmentation").model_validate(compared((UP, UP), (UP, UP)) | {"baseline": choice})
    assert baseline_text(read) == (
        "The baseline is the boosted trees on bands, chosen by mIoU. "
        "Left out: boosted trees with texture (more than 100 features)."
    )


def test_scores_without_those_of_the_chosen_baseline_are_refused() -> None:
    with pytest.raises(ValueError, match="of the baseline that was chosen are missing"):
        verdict_on(compared((UP, UP), (UP, UP)) | {"baseline": {"name": "linear", "by": "mIoU"}})


ERRORS: dict[str, Any] = {"rmse": None, "mae": None, "bias": None, "r2": None}
OF_VALUES: dict[str, Any] = {"task": "regression", "classes": ["height"], "maps": 1, "test_pixels": 9, "unit": "m"}
OF_VALUES |= {"model": ERRORS, "pixel_baseline": ERRORS, "mean": ERRORS | {"value": 5.0}, "range": [0.0, 9.0]}
PROBABILITIES = {"ece": 0.1, "brier": 0.1, "nll": 0.2, "confidence": 0.9, "accuracy": 0.9, "description": "none"}
PROBABILITIES |= {"bins": []}
ENDS: dict[str, Any] = {"ece": [0.01, 0.2], "brier": None, "nll": None, "level": 0.95, "pieces": 9}


@pytest.mark.parametrize(("gain", "baseline", "headline"), [
    (None, 2.0, f"The model is level with {PIXEL} (difference in RMSE 0 m), but is ahead of the mean of the labels "
     "(difference in RMSE -2 m). This may be chance: the metrics have no interval."),
    ([-0.4, -0.1], 2.2, f"The model is better than {PIXEL}, and than the mean of the labels."),
    ([0.1, 0.4], 1.8, f"The model is worse than {PIXEL}, but is better than the mean of the labels."),
    ([-0.1, 0.4], 1.8, f"The model cannot be told apart from {PIXEL} (difference in RMSE 0.2 m, 95 %: -0.1 to 0.4 m), "
     "but is better than the mean of the labels."),
])  # fmt: skip
def test_equal_errors_are_not_worse_and_a_lower_one_is_better(
    gain: list[float] | None, baseline: float, headline: str
) -> None:
    methods = {"model": ERRORS | {"rmse": 2.0}, "mean": ERRORS | {"rmse": 4.0, "value": 5.0}}
    methods["pixel_baseline"] = ERRORS | {"rmse": baseline}
    intervals = {"gain": {"rmse": gain}, "simple_gain": {"rmse": [-2.5, -1.5] if gain else None}}
    assert verdict_on(OF_VALUES | methods | {"intervals": intervals}).headline == headline


def test_errors_that_could_not_be_measured_are_dashes_in_the_summary(tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", OF_VALUES)
    assert "this model                    RMSE -   MAE -   bias -\n" in summary(str(tmp_path))


@pytest.mark.parametrize(("metrics", "text"), [
    ({key: value for key, value in OF_VALUES.items() if key != "unit"}, "unit is missing"),
    (compared((UP, UP), (UP, UP)) | {"task": "classification"}, "test_chips is missing"),
    (compared((UP, UP), (UP, UP)) | {"task": "x"}, "task is 'x': "),
    (OF_VALUES | {"calibration": PROBABILITIES | {"intervals": ENDS | {"nll": "x"}}}, "nll is 'x': write a list"),
    (OF_VALUES | {"calibration": PROBABILITIES | {"intervals": {}}}, "calibration.intervals.ece is missing"),
], ids=["unit", "number of chips", "task", "interval of a text", "no interval"])  # fmt: skip
def test_scores_without_what_their_task_has_are_refused_in_a_sentence(
    metrics: dict[str, Any], text: str, tmp_path: Path
) -> None:
    write_json(tmp_path / "metrics.json", metrics)
    with pytest.raises(BadInputError, match=f"metrics.json is not a file of scores.*{text}"):
        read_metrics(tmp_path / "metrics.json")


def test_samples_of_a_split_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    samples: dict[str, Any] = {"train": [], "test": []}
    for names, sentence in ((samples | {"val": [], "id": "x"}, "id is no split"), (samples, "val is missing")):
        write_json(tmp_path / "split.json", {"samples": names})
        with pytest.raises(BadInputError, match=f"samples is .*: {sentence}"):
            read_samples(tmp_path / "split.json")


def test_an_outline_walks_around_a_mask() -> None:
    mask = np.zeros((4, 5), bool)
    mask[1:3, 2:4] = True
    assert outline(mask) == "M2 1H4M2 3H4M2 1V3M4 1V3"
    assert outline(np.zeros((2, 2), bool)) == ""


@pytest.mark.parametrize(("shape", "longest"), [((7, 5), 3), ((1, 9), 4), ((2100, 3), 1000), ((4, 4), 9)])
def test_decimation_takes_the_centre_or_the_mean_of_each_block(shape: tuple[int, int], longest: int) -> None:
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    decimation = decimate(shape, longest)
    centres, means = (read(lambda y, x: values[y, x], decimation) for read in (read_centres, read_means))
    assert centres.shape == means.shape == decimation.shape
    assert max(decimation.shape) <= longest
    for row, col in np.ndindex(*decimation.shape):
        rows, cols = (slice(n * decimation.step, (n + 1) * decimation.step) for n in (row, col))
        block = values[rows, cols]
        assert centres[row, col] in block
        assert means[row, col] == pytest.approx(block.mean(dtype=np.float64), rel=1e-5)


def test_only_windows_that_may_have_data_are_read_and_the_others_are_blank() -> None:
    values, windows = np.arange(4096 * 4096, dtype=np.float32).reshape(4096, 4096), list[tuple[int, int]]()
    decimation = decimate(values.shape, 128)

    def read(y: slice, x: slice) -> np.ndarray:
        windows.append((y.start, x.start))
        return values[y, x]

    reached = [(slice(row, row + 1024), slice(1024, 1536)) for row in range(0, 4096, 1024)]
    centres, means = read_centres(read, decimation, reached, -1), read_means(read, decimation, reached)
    for image, whole, blank_value in ((centres, read_centres, -1), (means, read_means, np.nan)):
        expected = np.full((128, 128), blank_value)
        expected[:, 32:48] = whole(lambda y, x: values[y, x], decimation)[:, 32:48]
        np.testing.assert_array_equal(image, expected)
    # A centre is 16 pixels from the first of its block.
    firsts = [(row, 1024) for row in range(0, 4096, 1024)]
    assert windows == [(row + 16, column + 16) for row, column in firsts] + firsts
    blank = read_centres(read, decimation, [], -1)
    assert windows[-1] == (16, 16)
    assert (blank[:, 32:] == -1).all()


def test_an_image_of_a_large_raster_reads_what_its_stores_hold_and_no_more(tmp_path: Path) -> None:
    edge, places, pixels = 200_000, ((70, 150_001), (199_900, 3)), [0]
    grid, stores = make_grid((0.0, 0.0, 10.0 * edge, 10.0 * edge), "EPSG:32633", 10.0, (0, 0)), list[Tiles]()
    for number, (row, column) in enumerate(places):
        window, part = StoredWindow((edge, edge), (row, column), 64), grid[row : row + 64, column : column + 64]
        with new_store(tmp_path / f"{number}.zarr", part, ("red",), f"s{number}", {}, window) as group:
            add_array(group, "image", (1, 64, 64), "uint16", Layout(64, 64))
            add_array(group, "valid", (64, 64), "uint8", Layout(64, 64))
        stores.append(Tiles(tmp_path / f"{number}.zarr"))
    decimation = decimate((edge, edge), 800)

    def read(y: slice, x: slice) -> np.ndarray:
        pixels[0] += (y.stop - y.start) * (x.stop - x.start)
        return np.ones((y.stop - y.start, x.stop - x.start), np.float32)

    image = read_means(read, decimation, windows_of_stores(decimation, stores))
    step = decimation.step
    shown_pixels = {
        (n, m)
        for row, column in places
        for n in range(row // step, (row + 63) // step + 1)
        for m in range(column // step, (column + 63) // step + 1)
    }
    assert {(int(n), int(m)) for n, m in np.argwhere(np.isfinite(image))} == shown_pixels
    assert pixels[0] == len(shown_pixels) * step**2
    wider = read_centres(read, decimation, windows_of_stores(decimation, stores, margin=step))
    assert set(map(tuple, np.argwhere(wider).tolist())) > shown_pixels


def test_a_mean_leaves_out_what_is_missing() -> None:
    values = np.array([[1, np.nan], [3, np.nan]], np.float32)
    for factor, expected in ((1, 2), (np.nan, np.nan)):
        means = read_means(lambda y, x, factor=factor: values[y, x] * factor, decimate((2, 2), 1))
        np.testing.assert_array_equal(means, [[expected]])


def test_lengths_are_metres_also_where_the_grid_counts_degrees_or_feet() -> None:
    assert pixel_metres(GeoBox((9, 9), Affine(10, 0, 0, 0, -10, 0), "EPSG:32633")) == pytest.approx((10, 10))
    degrees = GeoBox((2, 2), Affine(0.001, 0, 10, 0, -0.001, 60.001), "EPSG:4326")
    # On the ellipsoid, which is flatter here than a sphere.
    assert pixel_metres(degrees) == pytest.approx((55.8, 111.41), abs=0.01)
    feet = GeoBox((2, 2), Affine(100, 0, 984_250, 0, -100, 200_000), "EPSG:2263")
    assert pixel_metres(feet) == pytest.approx((30.48, 30.48), abs=0.01)
    assert (format_length(850), format_length(12_500), format_length(2_345_678)) == ("850 m", "12.5 km", "2346 km")
    assert [round_length(maximum) for maximum in (99, 100, 0.6)] == [50, 100, 0.5]


def test_words_are_joined_as_in_a_sentence() -> None:
    assert (join_words(["a"]), join_words(["a", "b", "c"])) == ("a", "a, b and c")


def test_a_model_that_is_fitted_at_once_has_no_steps_in_its_report() -> None:
    rows = [{"step": step, "val": {"miou": 0.5 + step / 10}} for step in (1, 2)]
    sentences = [best_validation({"validations": rows[:count]}, "segmentation") for count in (1, 2)]
    assert sentences == [
        "Highest mIoU in the validation areas: 0.600 after its fit.",
        "Highest mIoU in the validation areas: 0.700 after step 2 of 2.",
    ]


@pytest.mark.parametrize("step", [1, 20])
def test_few_test_pixels_are_enlarged_over_the_image(step: int) -> None:
    size, blank = 200, np.full((200, 200), NO_LABEL, np.uint8)
    label, mapped = blank.copy(), np.zeros((size, size), np.uint8)
    label[::step, ::step] = np.arange(len(label[::step]))[:, None] % 2
    bands = np.random.default_rng(0).random((1, size, size)).astype(np.float32)
    quicklook = Quicklook(bands, np.ones((size, size), bool), False)
    confidence, role = np.ones((size, size), np.float32), np.full((size, size), 2, np.uint8)
    everything = slice(0, size), slice(0, size)
    view = MapView("", quicklook, label, mapped, confidence, role, label != NO_LABEL, everything)
    panel = map_panels(view, "", ("a", "b"), ("#000000", "#ffffff")).panels[-1]
    assert panel.title == "Errors in the test area" + (", its pixels enlarged" if step > 1 else "")
    with Image.open(BytesIO(panel.image.data)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    for color in (CORRECT, INCORRECT):
        of_color = (pixels == rgb(color)).all(-1)
        # Half of the test pixels each: nine image pixels for one, but at the edge.
        assert of_color.sum() == size**2 / 2 if step == 1 else 8 * 50 < of_color.sum() <= 9 * 50
    assert ((pixels == rgb(UNTESTED)).all(-1)).sum() == 0


@pytest.mark.parametrize(("required", "more", "sentence"), [
    (["iou:a=0.85", "iou:c=0.7", "miou=0.8", "gain=0.01"], {}, ""),
    (["iou:a=0.95"], {}, "iou of a is 0.9, and must be at least 0.95"),
    (["f1:c=0.8", "recall:a=0.1"], {}, "f1 of c is 0.7, and must be at least 0.8"),
    (["miou=0.81"], {}, "miou is 0.8, and must be at least 0.81"),
    (["gain=0.06"], {}, "gain is 0.02, and must be at least 0.06"),
    (["gain=-1"], {"intervals": {}}, "gain is not known here, and must be at least -1"),
])  # fmt: skip
def test_a_map_is_held_against_what_is_required_of_its_scores(
    tmp_path: Path, required: list[str], more: dict[str, Any], sentence: str
) -> None:
    write_json(tmp_path / "metrics.json", with_classes((0.9, 0.8, 0.7), (40, 30, 30)) | more)
    if not sentence:
        check_requirements(required, tmp_path / "metrics.json", None)
        return
    with pytest.raises(RequirementError, match=sentence) as caught:
        check_requirements(required, tmp_path / "metrics.json", None)
    assert caught.value.code == 9


@pytest.mark.parametrize(("required", "names"), [
    ("iuo:a=0.5", ("iuo:a", "did you mean iou")),
    ("iou=0.5", ("iou", "the whole map", "miou")),
    ("iou:a=high", ("iou:a=high", "a number")),
    ("iou:z=0.5", ("class z", "a, b, c")),
    ("area_error:a=0.1", ("area_error", "evaluate.sample")),
])  # fmt: skip
def test_a_figure_that_the_map_cannot_have_is_refused(tmp_path: Path, required: str, names: tuple[str, ...]) -> None:
    write_json(tmp_path / "metrics.json", with_classes((0.9, 0.8, 0.7), (40, 30, 30)))
    with pytest.raises(UsageError) as caught:
        check_requirements([required], tmp_path / "metrics.json", None)
    assert all(name in str(caught.value) for name in names)


def test_a_config_has_what_is_required_as_names_with_values() -> None:
    demo = read_config(Path(__file__).parents[2] / "config/config.yaml")
    config = check(demo | {"evaluate": {"require": {"iou": {"forest": 0.8, "water body": 0.5}, "gain": 0}}})
    assert config["evaluate"]["require"] == ("iou:forest=0.8", "iou:water body=0.5", "gain=0")
    with pytest.raises(UsageError, match=r"evaluate\.require has area_error, which needs evaluate\.sample"):
        check(demo | {"evaluate": {"require": {"area_error": {"forest": 0.05}}}})
    with pytest.raises(UsageError, match=r"evaluate\.require has iuo:forest.*did you mean iou"):
        check(demo | {"evaluate": {"require": {"iuo": {"forest": 0.8}}}})
