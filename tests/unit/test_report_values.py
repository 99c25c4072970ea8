"""The report of a regression shows what regression is judged by: agreement, errors, and errors by level."""

import base64
import re
from io import BytesIO
from pathlib import Path

import builders
import numpy as np
import pytest
import rasterio
from builders import grid_of, stage, write_labels, write_store
from PIL import Image
from scenery import split_outputs

from eopipe.arrays import FloatArray
from eopipe.reporting.charts import error_charts
from eopipe.reporting.figures import ValueScale, rgb
from eopipe.reporting.wording import DASH, format_measured
from eopipe.stac.mlm import to_item
from eopipe.stac.write import ItemExtent
from eopipe.text_files import write_json
from eopipe.tiles.layout import Layout

SIZE, NAME = 96, "tree cover"
LAYOUT = Layout(32, 96)


def write_map(path: Path, bands: list[FloatArray], names: tuple[str, ...]) -> Path:
    tags = {"task": "regression", "quantity": NAME, "unit": "%", "scenes": "S1"}
    return builders.write_map(path, np.stack(bands), grid_of((SIZE, SIZE)), float("nan"), names, **tags)


def write_model(path: Path) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    card = {"architecture": "unet", "width": 16, "depth": 3, "arguments": (), "chip": 8, "parameters": 117_000}
    card |= {"bands": ("red",), "classes": (NAME,), "task": "regression", "unit": "%", "target": (50.0, 20.0)}
    card |= {"mean": [0.0], "std": [1.0], "settings": {"epochs": 7, "dropout": 0.0, "clip": None, "schedule": "cosine"}}
    write_json(path / "model.json", to_item(card, path, "model.safetensors", ItemExtent()))
    write_json(path / "history.json", {"validations": [{"step": 1, "loss": 0.5, "val": {"rmse": 9.0}}]})
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished regression; the map is 3 too high, with noise of 5."""
    folder = tmp_path_factory.mktemp("run")
    random = np.random.default_rng(4)
    truth = (48 + 47 * np.sin(np.mgrid[0:SIZE, 0:SIZE].sum(0) / 15)).astype(np.float32)
    mapped = (truth + 3 + 5 * random.normal(size=truth.shape)).astype(np.float32)
    # Without noise chips would be alike, and the audit would find them.
    image = (truth * 30 + random.integers(500, 3000, truth.shape)).astype(np.uint16)[None]
    tiles = write_store(folder / "S1.zarr", ("red",), {"image": image}, layout=LAYOUT, valid_fraction=1.0)
    attributes = {"unit": "%", "range": [float(truth.min()), float(truth.max())], "pixels": {NAME: truth.size}}
    labels = write_labels(folder / "all.zarr", truth, (NAME,), layout=LAYOUT, **attributes)
    common = ["--tiles", tiles, "--labels", labels]
    options = ["--chip", "8", "--method", "west-east", "--fractions", "0.5", "0.2", "0.3"]
    assert stage("split", *common, *split_outputs(folder), *options) == 0
    classes = write_map(folder / "c.tif", [mapped], (NAME,))
    spread = [np.full(truth.shape, 2, np.float32), np.ones(truth.shape, np.float32)]
    names = (f"standard deviation of {NAME}", "scenes")
    probabilities = write_map(folder / "p.tif", spread, names)
    scored = ["--classes", classes, *common, "--chips", folder / "split.json", "--metrics", folder / "metrics.json"]
    assert stage("evaluate", *scored) == 0
    item = {"id": "S1", "links": [], "assets": {}, "properties": {"datetime": "2020-06-01T10:00:00Z"}}
    write_json(folder / "S1.geojson", item)
    outputs = ["--page", folder / "report.html", "--picture", folder / "map.png"]
    outputs += ["--model-card", folder / "model-card.md", "--data-card", folder / "data-card.md"]
    inputs = [*scored, "--probabilities", probabilities, "--scenes", folder / "S1.geojson"]
    assert stage("report", *inputs, "--model", write_model(folder / "model"), *outputs) == 0
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def test_the_page_shows_agreement_errors_and_errors_by_level(page: str) -> None:
    labels = re.findall(r'<svg class="chart"[^>]*aria-label="([^"]*)"', page)
    agreement, errors, levels = (next(text for text in labels if text.startswith(start)) for start in (
        "Map against label of",
        "Histogram of map minus label",
        "Median of map minus label by label",
    ))  # fmt: skip
    assert float(agreement.split("correlation ")[1].rstrip(".")) > 0.98
    assert float(re.findall(r"mean ([\d.]+)", errors)[0]) == pytest.approx(3, abs=0.3)
    medians = [float(part.split(" at ")[0]) for part in levels.partition(": ")[2].split(", ")]
    assert len(medians) >= 5
    assert medians == pytest.approx([3] * len(medians), abs=1.5)
    assert 'href="#errors"' in page
    assert "map equals label" in page


def test_values_have_a_colour_bar_between_round_numbers_and_errors_a_legend(page: str) -> None:
    assert "<span>0 %</span>" in page
    assert "<span>100 %</span>" in page
    (legend,) = re.findall(r'<section id="maps">.*?<div class="panels">', page, re.DOTALL)
    assert not re.search(r"\d to \d", legend), "no classes with odd bounds"
    head = r"Absolute error in the test area\s*"
    error = re.search(head + r'<span class="ramp"><span>0 %</span>.*?<span>≥ ([\d.]+) %', page)
    assert error
    assert 10 < float(error[1]) < 20
    assert "linear-gradient" in error[0]


def test_measures_without_a_maximum_have_no_bar_and_equal_decimals(page: str) -> None:
    row = re.search(r'<tr class="model">(.*?)</tr>', page, re.DOTALL)
    assert row
    rmse, mae, bias, r2 = re.findall(r"<td>(.*?)</td>", row[1], re.DOTALL)
    assert not any("bar" in cell for cell in (rmse, mae, bias))
    assert 'class="bar"' in r2
    numbers = [re.sub(r"<.*?>", "", cell).split()[0] for cell in (rmse, mae, bias)]
    assert len({len(number.partition(".")[2]) for number in numbers}) == 1


def test_the_value_of_a_pixel_can_be_read_from_its_colour(page: str, folder: Path) -> None:
    image = re.search(r'<img src="data:image/png;base64,([^"]*)"[^>]*alt="Predicted values', page)
    assert image
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(image[1]))).convert("RGB")).astype(int)
    scale = ValueScale(1.0, 95.0, "%")
    colors = np.array([rgb(color) for color in scale.colors])
    level = np.abs(pixels[:, :, None] - colors).sum(-1).argmin(-1)
    with rasterio.open(folder / "c.tif") as file:
        values = file.read(1)
    inside = (values > 2) & (values < 98)
    assert np.abs((level + 0.5) / len(colors) * 100 - values)[inside].max() < 1.0


def test_settings_that_differ_from_the_default_are_first_and_the_others_folded(page: str) -> None:
    table, _, folded = page.partition("at the default</summary>")
    model = table[table.rindex("Model, and the training settings") :]
    assert re.search(r'<th scope="row">epochs</th><td>7</td>', model)
    assert '<th scope="row">clip</th>' not in model
    assert f'<th scope="row">clip</th><td>{DASH}</td>' in folded


def test_a_split_table_is_on_the_page_once(page: str) -> None:
    assert page.count("<span>Settings of the split</span>") == 1


@pytest.mark.parametrize(
    ("low", "high", "first", "last"),
    [(0.8125, 94.9, 0, 100), (-3.2, 11, -4, 12), (5, 5, 5, None), (0.001, 0.0042, 0.001, 0.005)],
)
def test_a_scale_is_between_round_numbers_that_enclose_the_labels(
    low: float, high: float, first: float, last: float | None
) -> None:
    ticks = ValueScale(low, high, "").ticks
    assert ticks[0] <= low
    assert high <= ticks[-1] + 1e-9
    assert 2 <= len(ticks) <= 12
    if last is not None:
        assert (ticks[0], ticks[-1]) == (first, last)
    assert ValueScale(low, high, "").numbers(np.array([np.nan, -1e9, 1e9])).tolist() == [255, 0, 63]


def test_measured_values_of_a_column_have_the_digits_of_the_error() -> None:
    assert [format_measured(value, "m", 0.6772) for value in (0.6772, -0.00498)] == ["0.677 m", "-0.005 m"]
    assert [format_measured(value, "", 17.43) for value in (17.43, None)] == ["17.4", DASH]


def test_charts_of_few_or_equal_pixels_do_not_fail() -> None:
    assert error_charts(np.empty(0), np.empty(0), NAME, "%") == []
    assert len(error_charts(np.full(9, 5.0), np.full(9, 5.0), NAME, "")) == 2
    assert len(error_charts(np.arange(50.0), np.arange(50.0), NAME, "")) == 2


def test_the_same_run_gives_the_same_charts() -> None:
    label, mapped = np.random.default_rng(0).normal(size=(2, 500))
    assert error_charts(label, mapped, NAME, "m") == error_charts(label, mapped, NAME, "m")
