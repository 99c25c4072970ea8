"""The report page and the map, made through the command line from real stores and maps."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import rasterio
import yaml
from builders import grid_of, stage, write_labels, write_store
from huggingface_hub import DatasetCard, ModelCard
from PIL import Image
from scenery import split_outputs

from eopipe.arrays import AnyArray
from eopipe.cli import main
from eopipe.reporting.wording import DASH
from eopipe.run.project import summary
from eopipe.stac.mlm import to_card, to_item
from eopipe.stac.write import ItemExtent
from eopipe.tasks import TASKS
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.text_files import read_json, write_json
from eopipe.tiles.layout import Layout

Edit = Callable[[Any], None]
LAYOUT = Layout(chunk=64, shard=512)
SPACE = "\u202f"


@dataclass
class Finished:
    """A finished run on disk: what the report stage reads, by port."""

    folder: Path
    ports: dict[str, list[Path]]
    truth: AnyArray
    predicted: AnyArray

    def report(self, *extra: str, name: str = "out") -> tuple[int, str, Path]:
        """Run the stage; give the exit code, the page and the path of the map."""
        page, picture = self.folder / name / "report.html", self.folder / name / "map.png"
        arguments = [word for port, paths in self.ports.items() for word in (f"--{port}", *map(str, paths))]
        cards = [w for kind in ("model", "data") for w in (f"--{kind}-card", str(page.with_name(f"{kind}-card.md")))]
        code = main(["report", *arguments, "--page", str(page), "--picture", str(picture), *cards, *extra])
        return code, page.read_text() if page.exists() else "", picture

    def edit(self, port: str, change: Edit, name: str = "") -> None:
        """Change a JSON file of an input."""
        path = self.ports[port][0] / name
        value = read_json(path)
        change(value)
        write_json(path, value)


def smooth(size: int, classes: int) -> AnyArray:
    """Smooth places of each class, about as many pixels of one as of another."""
    y, x = np.mgrid[0:size, 0:size] / size
    waves = sum(np.sin(2 * np.pi * (a * x + b * y) + a) for a, b in ((1, 2), (-3, 1), (2, -1), (1, 3)))
    return np.digitize(waves, np.quantile(waves, np.linspace(0, 1, classes + 1)[1:-1])).astype(np.uint8)


def blurred(truth: AnyArray, classes: int, right: float, seed: int) -> AnyArray:
    random = np.random.default_rng(seed)
    random_classes = random.integers(0, classes, truth.shape).astype(np.uint8)
    return np.where(random.random(truth.shape) < right, truth, random_classes)


def write_tiles(path: Path, truth: AnyArray, bands: tuple[str, ...]) -> Path:
    random, size = np.random.default_rng(1), truth.shape[0]
    steps = np.arange(1, len(bands) + 1)[:, None, None] * 130
    image = 500 + steps * truth.astype(np.int64) + random.integers(0, 150, (len(bands), size, size))
    return write_store(path, bands, {"image": image.astype(np.uint16)}, layout=LAYOUT, valid_fraction=0.9)


def write_map(path: Path, bands: AnyArray, nodata: int, names: tuple[str, ...]) -> Path:
    return builders.write_map(path, bands, grid_of(bands.shape), nodata, names, scale=1e-4, driver="COG")


def write_model(path: Path, classes: tuple[str, ...], bands: tuple[str, ...]) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    size = {"architecture": "unet", "width": 16, "depth": 3, "arguments": (), "chip": 16, "parameters": 117_000}
    settings = {"learning_rate": 0.002, "epochs": 12, "deterministic": True}
    card = {"bands": bands, "classes": classes, "settings": settings, "task": "segmentation"} | size
    card |= {"mean": [0.0] * len(bands), "std": [1.0] * len(bands)}
    write_json(path / "model.json", to_item(card, path, "model.safetensors", ItemExtent()))
    validations = [{"step": 50 * n, "loss": 0.9 / n, "learning_rate": 0.002, "val": None} for n in range(1, 13)]
    for row in validations[::2]:
        row["val"] = {"accuracy": 0.95 - 20 / row["step"], "miou": 0.86 - 25 / row["step"]}
    write_json(path / "history.json", {"validations": validations})
    return path


def write_scores(path: Path, classes: tuple[str, ...], truth: AnyArray, predicted: AnyArray, baseline: float) -> Path:
    known = predicted != 255
    guesses = {
        "model": predicted,
        "majority": np.zeros_like(truth),
        "pixel_baseline": blurred(truth, len(classes), baseline, 9),
        "texture_baseline": blurred(truth, len(classes), baseline - 0.1, 10),
    }
    counts = {k: confusion_matrix(truth[known], v[known], len(classes)).ravel() for k, v in guesses.items()}
    metrics = {k: ClassTables(classes).document(table) for k, table in counts.items()}
    metrics["majority"]["class"], metrics["pixel_baseline"]["method"] = classes[0], "boosted trees"
    metrics["texture_baseline"]["method"] = "boosted trees on texture"
    intervals = {"level": 0.95, "method": "of this test", "range": 12.0, "model": {}, "missing": {}}
    intervals |= {"model": {key: around(metrics["model"][key]) for key in ("accuracy", "miou")}}
    for name, other in (("gain", "pixel_baseline"), ("texture_gain", "texture_baseline"), ("simple_gain", "majority")):
        intervals[name] = {k: around(metrics["model"][k] - metrics[other][k]) for k in ("accuracy", "miou")}
    write_json(path, {"classes": classes, "test_pixels": int(known.sum()), "maps": 1, "intervals": intervals} | metrics)
    return path


def around(value: float) -> list[float]:
    return [round(value - 0.02, 6), round(value + 0.01, 6)]


def write_item(path: Path, day: int) -> Path:
    links = [{"rel": "license", "href": "https://example.org/licence"}]
    properties = {"datetime": f"2020-06-{day:02}T10:00:00Z", "eo:cloud_cover": 3.25 * day}
    write_json(path, {"id": path.stem, "links": links, "assets": {}, "properties": properties})
    return path


def finish(
    folder: Path,
    classes: tuple[str, ...] = ("non-forest", "forest"),
    *,
    size: int = 100,
    right: float = 0.95,
    baseline: float = 0.6,
    scenes: int = 2,
    mosaic: bool = True,
    bands: tuple[str, ...] = ("blue", "green", "red"),
) -> Finished:
    """Write a run with one mosaic, or with a map of each scene; trained in the west, tested in the east."""
    folder.mkdir(exist_ok=True)
    names, kinds = [f"S{n + 1}" for n in range(scenes)], len(classes)
    truth = smooth(size, kinds)
    predicted = blurred(truth, kinds, right, 5)
    probabilities = np.full((kinds, size, size), 3000 // (kinds - 1), np.uint16)
    np.put_along_axis(probabilities, predicted[None].astype(np.int64), np.uint16(7000), axis=0)
    predicted[: size // 20], probabilities[:, : size // 20] = 255, 65535
    tiles = [write_tiles(folder / f"{name}.zarr", truth, bands) for name in names]
    labels = write_labels(folder / "all.zarr", truth, classes, layout=LAYOUT)
    split, chip = folder / "split.json", size // 10 // 4 * 4
    options = f"--chip {chip} --method west-east --fractions 0.5 0.2 0.3 --min-valid 0.1".split()
    assert stage("split", "--tiles", *tiles, "--labels", labels, *split_outputs(folder), *options) == 0
    test = np.s_[:, size * 7 // 10 :]
    maps = [""] if mosaic else names
    ports = {
        "metrics": [write_scores(folder / "metrics.json", classes, truth[test], predicted[test], baseline)],
        "model": [write_model(folder / "model", classes, bands)],
        "chips": [split],
        "classes": [write_map(folder / f"{m}c.tif", predicted[None], 255, ("class",)) for m in maps],
        "probabilities": [write_map(folder / f"{m}p.tif", probabilities, 65535, classes) for m in maps],
        "tiles": tiles,
        "labels": [labels],
        "scenes": [write_item(folder / f"{name}.geojson", n + 1) for n, name in enumerate(names)],
    }
    return Finished(folder, ports, truth, predicted)


@pytest.fixture(scope="module")
def run_(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run that no test changes."""
    return finish(tmp_path_factory.mktemp("run") / "a")


@pytest.fixture(scope="module")
def page(run_: Finished) -> str:
    """Its page."""
    code, text, _ = run_.report("--title", "Forest", "--attribution", "Copernicus 2020", name="page")
    assert code == 0
    return text


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def decoded(page: str, alt: str) -> AnyArray:
    """The picture of a page whose description starts so, as RGBA."""
    image = next(i for i in Tags(page).of("img") if str(i["alt"]).startswith(alt))
    data = base64.b64decode(str(image["src"]).split(",", 1)[1])
    return np.asarray(Image.open(BytesIO(data)).convert("RGBA"))


def test_the_page_loads_nothing_from_anywhere(page: str) -> None:
    tags, loading = Tags(page), ("src", "srcset", "poster", "data", "background")
    assert not {name for name, _ in tags.elements} & {"script", "link", "iframe"}
    loaded = [str(a[k]) for _, a in tags.elements for k in loading if k in a]
    assert loaded
    assert all(address.startswith("data:image/") for address in loaded)
    assert all(str(use["href"]).startswith("#") for use in tags.of("use"))
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_every_image_has_a_description_and_every_table_cell_a_head(page: str) -> None:
    tags = Tags(page)
    assert len(tags.of("img")) == 6 + 2  # the map and the areas of its splits, and a thumbnail of each scene
    assert all(image["alt"] for image in tags.of("img"))
    assert all(chart["aria-label"] for chart in tags.of("svg") if chart.get("role") == "img")
    assert all(head["scope"] in {"col", "row"} for head in tags.of("th"))
    assert len(tags.of("caption")) == len(tags.of("table"))


def test_links_lead_to_parts_that_exist(page: str) -> None:
    tags = Tags(page)
    ids = {attributes["id"] for _, attributes in tags.elements if "id" in attributes}
    targets = {str(a["href"])[1:] for a in [*tags.of("a"), *tags.of("use")] if str(a["href"]).startswith("#")}
    assert targets <= ids


def test_the_page_says_where_the_data_come_from(page: str) -> None:
    text, cloud, parameters = Tags(page).text, f"6.5{SPACE}%", f"117{SPACE}000"
    for part in ("Copernicus 2020", "https://example.org/licence", "2020-06-02", cloud, "learning rate", parameters):
        assert part in text
    assert re.search(r"Weights \(sha256\)\s*[0-9a-f]{64}", text)


def test_the_same_run_gives_the_same_bytes(run_: Finished, page: str) -> None:
    _, again, picture = run_.report("--title", "Forest", "--attribution", "Copernicus 2020", name="again")
    assert again == page
    assert picture.read_bytes() == (run_.folder / "page/map.png").read_bytes()
    assert cards_of(run_, "again") == cards_of(run_, "page")


def test_pictures_show_the_maps_pixel_by_pixel_and_nothing_where_no_map_is(run_: Finished, page: str) -> None:
    forest, picture = (27, 122, 67, 255), decoded(page, "Predicted")
    np.testing.assert_array_equal((picture == forest).all(-1), run_.predicted == 1)
    np.testing.assert_array_equal(picture[..., 3], np.where(run_.predicted == 255, 0, 255))
    np.testing.assert_array_equal((decoded(page, "Labels") == forest).all(-1), run_.truth == 1)


def test_errors_are_marked_in_the_test_area_only(run_: Finished, page: str) -> None:
    errors = (decoded(page, "Test pixels") == (209, 73, 12, 255)).all(-1)
    split = read_json(run_.ports["chips"][0])
    area = np.zeros_like(errors)
    for _, row, col in split["samples"]["test"]:
        area[row : row + split["chip"], col : col + split["chip"]] = True
    np.testing.assert_array_equal(errors, area & (run_.predicted != 255) & (run_.predicted != run_.truth))


def test_every_panel_has_a_scale_bar_and_opens_large_without_a_script(page: str) -> None:
    tags = Tags(page)
    panels = [figure for figure in tags.of("figure") if figure.get("class") == "panel"]
    assert len(panels) == 6
    links = [str(link["href"]) for link in tags.of("a") if link.get("class") == "enlarge"]
    assert links == [f"#{figure['id']}" for figure in panels]
    bars = [span for span in tags.of("span") if span.get("class") == "scalebar"]
    # The area is 1000 m wide; a bar of at most 35 % of it is 200 m.
    assert [str(bar["style"]) for bar in bars] == ["--w:0.2000"] * 6
    assert "200 m" in tags.text


def test_the_verdict_says_which_method_is_better(tmp_path: Path, page: str) -> None:
    assert "The model is better than the boosted trees with texture, and than always predicting “non-forest”." in page
    _, text, _ = finish(tmp_path / "run", right=0.7, baseline=0.95).report()
    sentences, better = Tags(text).text, "but is better than always predicting “non-forest”."
    assert f"The model is worse than the boosted trees with texture, {better}" in sentences
    assert "times as many errors as the boosted trees with texture" in sentences
    assert 'class="verdict bad"' in text


@pytest.mark.exhaustive
def test_intervals_are_beside_the_scores_and_a_difference_that_may_be_chance_has_a_neutral_colour(
    tmp_path: Path,
) -> None:
    run = finish(tmp_path / "run")
    metrics = read_json(run.ports["metrics"][0])
    low, high = metrics["intervals"]["model"]["accuracy"]
    _, text, _ = run.report()
    assert f"<small>{low:.3f} to {high:.3f}</small>" in text
    counted = {"independent": {"model": 38.7}, "range": 72.8}
    run.edit("metrics", lambda content: content["intervals"].update(counted))
    _, with_count, _ = run.report(name="count")
    assert "about 39 independent pieces, since errors are alike over up to 73 pixels: more" in Tags(with_count).text
    assert "Model minus boosted trees on bands" in text
    assert "Model minus boosted trees with texture" in text
    assert "<small>boosted trees on texture</small>" in text
    model, _ = cards_of(run, "out")
    for name in ("Boosted trees on bands", "Boosted trees with texture", "Model minus boosted trees on bands"):
        assert f"\n| {name} | " in model
    assert "they do not include the spread over seeds" in text
    around_zero = {"accuracy": [-0.022, 0.01], "miou": [-0.03, 0.02]}
    run.edit("metrics", lambda content: content["intervals"].update(texture_gain=around_zero))
    _, text, _ = run.report(name="neutral")
    assert "The model cannot be told apart from the boosted trees with texture (gain " in text
    assert ", 95 %: -0.022 to 0.010), but is better than always predicting" in Tags(text).text
    assert 'class="verdict mixed"' in text
    run.edit("metrics", lambda content: content.update(intervals={"reason": "too few independent pieces to say"}))
    _, text, _ = run.report(name="none")
    assert "This may be chance: too few independent pieces to say." in text
    assert "The scores of the model have no confidence interval: too few independent pieces to say." in text


def test_each_test_scene_has_its_scores_where_scenes_are_split(tmp_path: Path) -> None:
    run, measures = finish(tmp_path / "run"), [score.key for score in TASKS["segmentation"].scores]
    scene = {"scene": "S9", "date": "2020-06-09", "count": 1234, "scores": dict.fromkeys(measures, 0.777)}
    run.edit("metrics", lambda content: content.update(scenes=[scene]))
    _, text, _ = run.report()
    model, _ = cards_of(run, "out")
    assert f"| S9 | 2020-06-09 |{' 0.777 |' * len(measures)} 1 234 |" in model
    assert "Scores of each test scene" in text


def test_no_text_of_a_run_becomes_markup_and_only_a_web_address_a_link(tmp_path: Path) -> None:
    run = finish(tmp_path / "run", (name := '<script>alert("x")</script>', "a|b&b"))
    run.edit("scenes", lambda item: item["links"][0].update(href="javascript:alert(1)"))
    title = "<b>bold</b>\n# Not a head"
    code, text, _ = run.report("--title", title, "--attribution", "<i>", "--license", "MIT")
    tags, (model, _) = Tags(text), cards_of(run, "out")
    assert code == 0
    assert not tags.of("script")
    assert not tags.of("i")
    assert name in tags.text
    assert "<b>bold</b>" in tags.text
    assert "a|b&b" in tags.text
    assert not [a for a in tags.of("a") if str(a["href"]).startswith("javascript")]
    content = model.split("---\n", 2)[2]
    assert not re.search(r"(?<!\\)<(script|b|i)\b", content)
    assert "\n# Not a head" not in content
    assert ModelCard(model).data.license == "mit"


def test_a_split_without_validation_chips_is_named_on_the_page_and_in_both_cards(tmp_path: Path) -> None:
    run, sentence = finish(tmp_path / "run"), "no validation chips, so calibration cannot work"
    assert sentence not in Tags(run.report(name="before")[1]).text
    run.edit("chips", lambda split: split.update(warnings=[sentence]))
    code, page, picture = run.report(name="after")
    assert code == 0
    assert sentence in Tags(page).text
    assert f"Warning of the splits: {sentence}." in picture.with_name("model-card.md").read_text()
    assert sentence in picture.with_name("data-card.md").read_text()


def test_a_short_training_is_named_at_the_end_of_the_run(tmp_path: Path) -> None:
    run, card = finish(tmp_path / "run"), tmp_path / "results/model/model.json"
    card.parent.mkdir(parents=True)
    for steps, is_short in ((30, True), (400, False)):
        run.edit("model", partial(set_length, steps=steps, labelled=100, passes=50.0), "model.json")
        write_json(card, read_json(run.ports["model"][0] / "model.json"))
        assert (f"Warning: the training has {steps} steps" in summary(str(tmp_path / "results"))) == is_short


def set_length(item: dict[str, Any], **length: float) -> None:
    item["properties"]["mlm:hyperparameters"] |= length


@pytest.mark.exhaustive
def test_a_scene_that_is_not_used_is_named_with_the_reason_on_the_page_and_in_both_cards(tmp_path: Path) -> None:
    run, row = finish(tmp_path / "run"), {"scene": "S9", "valid": 0.0, "reason": "asset red is XML"}
    run.edit("chips", lambda split: split.update(left_out=[row]))
    code, page, _ = run.report(name="after")
    assert code == 0
    assert "not used: asset red is XML" in Tags(page).text
    for card in cards_of(run, "after"):
        assert "Scene S9 is not used: asset red is XML." in card


@pytest.mark.exhaustive
def test_of_many_maps_six_are_included_and_the_others_are_counted(tmp_path: Path) -> None:
    code, text, picture = finish(tmp_path / "run", scenes=8, mosaic=False).report()
    assert code == 0
    assert text.count("<h3>2020-06-") == 6
    assert "6 of 8 maps are included" in Tags(text).text
    assert "the scores are of all maps" in Tags(text).text
    with Image.open(picture) as image:
        assert image.width == 1400


@pytest.mark.exhaustive
def test_a_large_map_makes_a_small_page(tmp_path: Path) -> None:
    code, text, picture = finish(tmp_path / "run", size=2000, right=0.8, scenes=1).report()
    assert code == 0
    assert len(text) < 5_000_000
    assert picture.stat().st_size < 2_000_000
    assert max(int(str(image["width"])) for image in Tags(text).of("img")) <= 800


def test_without_true_colour_the_first_band_is_shown(tmp_path: Path) -> None:
    _, text, _ = finish(tmp_path / "run", bands=("vv", "vh")).report()
    quicklook = decoded(text, "First band")
    assert (quicklook[..., 0] == quicklook[..., 1]).all()
    assert np.ptp(quicklook[..., 0]) > 100


@pytest.mark.exhaustive
def test_the_losses_of_single_steps_are_behind_those_of_the_validations(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    _, before, _ = run.report()
    rows: list[dict[str, object]] = [{"event": "step", "step": n, "loss": 1 / n} for n in range(1, 601)]
    rows.insert(50, {"event": "validation", "step": 50})
    (run.ports["model"][0] / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _, after, _ = run.report()
    assert "curve-steps" not in before
    (path,) = re.findall(r'<g id="curve-steps"> <path d="M ([^"]*) "', after)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    assert len(points) == 200
    # As wide as the validations, and falling: the vertical of an SVG points down.
    assert points[-1][0] - points[0][0] > 250
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert run.report()[1] == after


@pytest.mark.exhaustive
def test_page_and_card_say_how_long_the_training_was_and_what_the_model_never_predicts(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    run.edit("model", partial(set_length, steps=600, labelled=1500, passes=40.5), "model.json")
    _, text, _ = run.report()
    card, _ = cards_of(run, "out")
    assert "The training has 600 steps, 40.5 passes over 1500 labelled pixels." in Tags(text).text
    assert "| length of the training | 600 steps, 40.5 passes over 1500 labelled pixels |" in card
    assert "never predicts" not in card
    run.edit("model", partial(set_length, steps=20, passes=2.0), "model.json")
    scores = {"accuracy": 0.9, "miou": 0.4, "never_predicted": ["b"]}
    run.edit("model", lambda value: value["validations"][-1].update(val=scores), "history.json")
    _, text, _ = run.report()
    card, _ = cards_of(run, "out")
    for sentence in (
        "The training has 20 steps, 2 passes over 1500 labelled pixels",
        "train.steps: 200",
        "In the validation areas the model never predicts “b”.",
    ):
        assert sentence in Tags(text).text
        assert sentence in card.replace("\\", "")


def test_scores_that_are_not_defined_show_as_a_dash(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    run.edit("metrics", lambda value: value["model"].update(accuracy=None, miou=None, kappa=None))
    run.edit("model", lambda value: value.update(validations=[]), "history.json")
    code, text, _ = run.report()
    assert code == 0
    assert "The model could not be scored." in text
    assert "No validation was recorded." in text
    assert "None" not in Tags(text).text


def write_fold(run: Finished, fold: int, **changes: Any) -> Path:
    """Scores of a fold, which are those of the run with some fields changed."""
    write_json(path := run.folder / f"metrics-fold-{fold}.json", read_json(run.ports["metrics"][0]) | changes)
    return path


@pytest.mark.parametrize(("damage", "message"), [
    (lambda run: run.edit("metrics", lambda value: value.update(classes=["a", "b"])), "different classes"),
    (lambda run: run.edit("metrics", lambda value: value.pop("classes")), "classes is missing"),
    (lambda run: run.ports.update(classes=run.ports["classes"] * 3), "3 maps of classes and 1 of probabilities"),
    (lambda run: write_map(run.ports["classes"][0], np.zeros((1, 50, 50), np.uint8), 255, ("c",)), "another grid"),
    (lambda run: write_map(run.ports["probabilities"][0], np.zeros((2, 100, 100), np.uint16), 9, ("b", "a")), "b, a"),
    (lambda run: run.ports["classes"][0].write_bytes(b"no map"), "cannot be read as a map"),
    (lambda run: run.ports.update({"fold-metrics": [write_fold(run, 0, classes=["water", "land"])]}),
     "split, scores, model and fold 0 have different classes"),
])  # fmt: skip
def test_parts_of_different_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Finished], Any], message: str
) -> None:
    run = finish(tmp_path / "run")
    damage(run)
    code, text, picture = run.report()
    assert code == 3
    assert not text
    assert not picture.exists()
    assert message in capsys.readouterr().err


def test_own_colours_are_used_and_must_fit_the_classes(run_: Finished) -> None:
    code, text, _ = run_.report("--colors", "#112233", "#AABBCC", name="own")
    assert code == 0
    assert ((decoded(text, "Labels") == (0x11, 0x22, 0x33, 255)).all(-1) == (run_.truth == 0)).all()
    assert run_.report("--colors", "#112233", name="few")[0] == 2
    assert run_.report("--colors", "red", "blue", name="named")[0] == 2


@pytest.mark.usefixtures("page")
def test_the_record_names_all_outputs(run_: Finished) -> None:
    record = json.loads((run_.folder / "page/report.html.run.json").read_text())
    assert [row["name"] for row in record["outputs"]] == ["report.html", "map.png", "model-card.md", "data-card.md"]


# Cards


def cards_of(run: Finished, name: str) -> tuple[str, str]:
    return tuple((run.folder / name / f"{kind}-card.md").read_text() for kind in ("model", "data"))  # type: ignore[return-value]


def test_hugging_face_reads_the_cards(run_: Finished) -> None:
    run_.report("--title", "Forest: west", "--license", "CC-BY-4.0", name="hub")
    model, data = (card(text).data for card, text in zip((ModelCard, DatasetCard), cards_of(run_, "hub"), strict=True))
    assert (model.license, model.pipeline_tag, model.library_name) == ("cc-by-4.0", "image-segmentation", "eopipe")
    scores = {result.metric_type: result.metric_value for result in model.eval_results}
    metrics = read_json(run_.ports["metrics"][0])["model"]
    assert scores == {"accuracy": metrics["accuracy"], "mean_iou": metrics["miou"], "f1": metrics["f1_macro"]}
    assert {result.dataset_type for result in model.eval_results} == {"eopipe"}
    assert (data.license, data.task_categories) == ("cc-by-4.0", ["image-segmentation"])


@pytest.mark.parametrize(("options", "front_matter"), [
    ((), {"license": "unknown"}),
    (("--license", "MIT"), {"license": "mit"}),
    (("--license", "EUPL-1.2"),
     {"license": "other", "license_name": "eupl-1.2", "license_link": "https://spdx.org/licenses/EUPL-1.2"}),
])  # fmt: skip
def test_a_licence_is_named_as_the_hub_names_it(
    run_: Finished, options: tuple[str, ...], front_matter: dict[str, str]
) -> None:
    name = f"licence-{len(options)}-{front_matter['license']}"
    run_.report(*options, name=name)
    read = yaml.safe_load(cards_of(run_, name)[0].split("---\n")[1])
    assert {key: value for key, value in read.items() if key.startswith("license")} == front_matter


def test_the_model_card_says_what_is_not_stated_and_what_was_not_measured(run_: Finished, page: str) -> None:
    model, data = cards_of(run_, "page")
    for word in ("Intended use", "Limits", "Energy", "Licence", "How to cite", "How to use", "Scores"):
        assert f"\n## {word}\n" in model
    item = run_.ports["model"][0] / "model.json"
    range_text = "Errors are correlated over about 12 pixels (120 m), as measured in the test areas."
    scenes = ("Licence of the scenes: https://example.org/licence", "Copernicus 2020")
    named = (to_card(read_json(item), item)["classes"][1], *scenes)
    for part in ("Use: not stated", "Not measured.", range_text, *named):
        assert part in model
    assert "| S2 | 2020-06-02 |" in data
    assert "Not measured." in Tags(page).text, "the cards are in the page too"


def test_statements_of_the_authors_are_in_the_card(run_: Finished) -> None:
    options = ("--use", "Screening of plots.", "--limits", "Not for payments", "not in winter")
    _, page, _ = run_.report(*options, "--author", "Ada Lovelace", "--license", "CC-BY-4.0", name="stated")
    model, _ = cards_of(run_, "stated")
    cited = "Ada Lovelace: eopipe run. CC-BY-4.0. Produced with eopipe"
    assert f"<dt>How to cite this map</dt><dd>{cited}" in page
    assert "Use: Screening of plots." in model
    assert "- Not for payments\n- not in winter\n" in model
    assert cited in model


def test_intervals_of_scores_classes_and_quarters_are_in_the_card(tmp_path: Path) -> None:
    run = finish(tmp_path / "run", scenes=1)
    ports = {key: value for key, value in run.ports.items() if key in ("classes", "tiles", "labels", "chips")}
    with rasterio.open(run.ports["classes"][0], "r+", IGNORE_COG_LAYOUT_BREAK="YES") as file:
        file.update_tags(scenes="S1")
    arguments = [word for port, paths in ports.items() for word in (f"--{port}", *map(str, paths))]
    assert main(["evaluate", *arguments, "--metrics", str(run.ports["metrics"][0])]) == 0
    run.report()
    model, _ = cards_of(run, "out")
    metrics = read_json(run.ports["metrics"][0])
    low, high = metrics["intervals"]["model"]["miou"]
    assert f"({low:.3f} to {high:.3f})" in model
    low, high = metrics["intervals"]["model"]["recall:forest"]
    assert f"{metrics['model']['per_class']['forest']['recall']:.3f} ({low:.3f} to {high:.3f})" in model
    assert "doi:10.1016/j.jeconom.2011.01.007" in model
    assert "they do not include the spread over seeds" in model
    assert "Labels are correlated" not in model
    named = set(re.findall(r"^\| ([a-z]+-[a-z]+) \|", model, re.MULTILINE))
    assert {region["name"] for region in metrics["regions"]} <= named
    assert low < metrics["model"]["per_class"]["forest"]["recall"] < high


def test_the_folds_of_a_cross_validation_have_their_scores_with_mean_and_standard_deviation(tmp_path: Path) -> None:
    run = finish(tmp_path / "run")
    _, without, _ = run.report(name="without")
    model = read_json(run.ports["metrics"][0])["model"]
    scores = [{"accuracy": 0.7, "kappa": None}, {"accuracy": 0.8, "kappa": 0.5}, {"accuracy": 0.96, "kappa": 0.6}]
    run.ports["fold-metrics"] = [write_fold(run, fold, model=model | row) for fold, row in enumerate(scores)]
    code, page, _ = run.report()
    assert code == 0
    assert "Cross-validation: scores of each fold" in Tags(page).text
    lines = [line.split("|") for line in cards_of(run, "out")[0].splitlines()]
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:]] for cells in lines if len(cells) > 5}
    named = [rows[name] for name in ("fold 0", "fold 2", "mean", "standard deviation")]
    # By the definition with n - 1: (0.12² + 0.02² + 0.14²) / 2 is 0.0172, and 2 · 0.05² is 0.005.
    assert [row[0] for row in named] == ["0.700", "0.960", "0.820", "0.131"]
    kappa_cell = [score.key for score in TASKS["segmentation"].scores].index("kappa")
    assert [row[kappa_cell] for row in named] == [DASH, "0.600", "0.550", "0.071"]
    assert "Cross-validation" not in Tags(without).text


@pytest.mark.parametrize(("samples", "dots", "text"), [
    ([50, 400], 2, "share of its pixels. "),
    ([49, 50, 400], 2, "share of its pixels; 1 bin of fewer than 50 pixels has no dot. "),
    ([40, 41, 42, 40, 41], 0, "There is no curve: no bin has 50 pixels. "),
])  # fmt: skip
def test_a_bin_of_few_pixels_has_no_dot_of_calibration(
    tmp_path: Path, samples: list[int], dots: int, text: str
) -> None:
    rows = [(count, 0.5 + 0.1 * n, 0.4 + 0.1 * n) for n, count in enumerate(samples)]
    bins = [dict(zip(("samples", "confidence", "accuracy"), row, strict=True)) for row in rows]
    intervals = {"ece": [0.0, 0.2], "brier": None, "nll": None, "level": 0.95, "pieces": 9}
    calibration = {"ece": 0.1, "brier": 0.1, "nll": 0.2, "confidence": 0.9, "accuracy": 0.9, "description": "none"}
    run = finish(tmp_path / "run")
    calibration |= {"bins": bins, "intervals": intervals}
    run.edit("metrics", lambda metrics: metrics.update(calibration=calibration))
    code, page, _ = run.report()
    assert code == 0
    assert "expected calibration error (ECE) 0.100 (0.000 to 0.200)" in page
    assert text + "Confidence intervals of 95 %" in page
    curves = re.findall(r"Reliability curve, accuracy by confidence: ([^<\"]*)\.\"", page)
    assert [len(curve.split(", ")) for curve in curves] == [dots] * bool(dots)
