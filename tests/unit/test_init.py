"""`eopipe init` writes a config that `eopipe check` accepts, or nothing and one sentence."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio.raw
import pytest
import rasterio
import shapely
import yaml
from chip_files import EDGE, import_set, write_chip, write_world
from rasterio.transform import from_origin
from scenery import CRS, LEFT, TOP, Catalog, Run

from eopipe.chips.block_choice import empty_splits
from eopipe.config import check, load
from eopipe.config_conflicts import plan_of
from eopipe.errors import UsageError
from eopipe.planning.check_config import run_frame
from eopipe.run.rules import options
from eopipe.tiles.globe import transformer

ROOT = Path(__file__).parents[2]
# 4 x 4 km: at 10 m the grid has about 400 x 400 pixels.
BOX = ("15.0", "46.0", "15.052", "46.036")


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, bands, classes):
        super().__init__()
        self.convolution = nn.Conv2d(bands, classes, 1)

    def forward(self, image):
        return self.convolution(image)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_of(folder: Path) -> dict[str, Any]:
    return load(folder / "config.yaml")


def shape_of(config: dict[str, Any]) -> tuple[int, int]:
    frame = run_frame(config)
    assert frame is not None
    return frame.shape


def with_labels(folder: Path) -> None:
    """Labels of a class of the config, so that the project lacks nothing."""
    label = config_of(folder)["label"]
    value = np.array([1.5 if label["measure"] else label["classes"][0]])
    shapes = np.array([shapely.to_wkb(shapely.box(-100, -80, 160, 80))], object)
    fields = {"field_data": [value], "fields": [label["attribute"]]}
    pyogrio.raw.write(folder / label["source"], shapes, **fields, crs="EPSG:4326", geometry_type="Polygon")


def check_project(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The config of a project, which passes `eopipe check` in its folder once there are labels."""
    monkeypatch.chdir(folder)
    completed = run("check").ends(3, "label.source labels.gpkg is missing")
    assert "\n" not in completed.stderr.rstrip(), "nothing else is missing"
    with_labels(folder)
    assert run("check").code == 0
    return load(Path("config.yaml"))


def test_a_small_area_gets_blocks_that_fill_every_split_and_windows(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("init", "area", "--bbox", *BOX).code == 0
    config = check_project(folder / "area", run, monkeypatch)
    shape = shape_of(config)
    assert 390 < shape[0] < 420, "10 m"
    assert empty_splits(shape, plan_of(config["split"])) == []
    assert config["split"]["block"] >= 2 * config["split"]["chip"]
    assert config["fetch"]["windows"]
    text = (folder / "area/config.yaml").read_text()
    assert "# best: 3" in text
    assert "# per: month" in text


@pytest.mark.parametrize(
    ("options", "stack"),
    [((), "season"), (("--datetime", "2023-06-01/2023-08-31"), "none"), (("--datetime", "2022-07/2023-07"), "season")],
)
def test_dates_of_two_seasons_become_one_image_of_seasonal_medians(
    folder: Path, run: Run, options: tuple[str, ...], stack: str
) -> None:
    assert run("init", "area", "--bbox", *BOX, *options).code == 0
    composite = config_of(folder / "area")["composite"]
    assert (composite["stack"], composite["method"]) == (stack, "none" if stack == "none" else "median")


@pytest.mark.parametrize("edge", [0.02, 0.1, 0.5, 2.0])
def test_blocks_are_chosen_for_every_size_of_area(folder: Path, run: Run, edge: float) -> None:
    assert run("init", "area", "--bbox", "15.0", "46.0", str(15 + edge), str(46 + edge)).code == 0
    config = config_of(folder / "area")
    shape = shape_of(config)
    assert empty_splits(shape, plan_of(config["split"])) == []
    assert config["split"]["chip"] == (128 if edge > 0.09 else 32 if edge > 0.03 else 16)
    assert config["fetch"]["windows"] == (edge < 1)


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ((), "init needs --area or --bbox", 2),
        (("--bbox", "500", "2", "3", "4"), "is not west south east north in degrees", 2),
        (("--bbox", "15.0", "46.1", "15.1", "46.0"), "is not west south east north in degrees", 2),
        (("--bbox", *BOX, "--datetime", "yesterday"), "'yesterday' is not a date or interval", 2),
        (("--bbox", *BOX, "--datetime", "2024-09-01/2024-05-01"), "ends before it starts", 2),
        (("--bbox", *BOX, "--classes", "forest"), "label.classes has one class, forest", 2),
        (("--bbox", *BOX, "--classes", "forest", "forest"), "label.classes has forest", 2),
        (("--bbox", *BOX, "--model", "resnet"), "there is no model resnet; use unet, convnext", 2),
        (("--bbox", *BOX, "--collection", "sentinel-9"), "sentinel-9 is not in the examples (cop-dem-glo-30, hls2", 2),
        (("--bbox", *BOX, "--task", "regression", "--classes", "a", "b"), "--task regression has no classes", 2),
        (("--bbox", *BOX, "--url", "https://stac.example.org"), "name --bands", 2),
        (("--bbox", "15.0", "46.0", "15.0005", "46.0005"), "too small for three blocks of chips", 2),
        (("--area", "nowhere.gpkg"), "there is no file nowhere.gpkg", 3),
        (("--area", "notes.txt"), "notes.txt cannot be read as a vector file; give a GeoPackage, GeoJSON or", 3),
        (("--area", "notes.geojson"), "notes.geojson is not valid JSON", 3),
        (("--catalog", "nowhere"), "nowhere has no catalog.json", 3),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing(
    folder: Path, run: Run, arguments: tuple[str, ...], sentence: str, code: int
) -> None:
    for name in ("notes.txt", "notes.geojson"):
        (folder / name).write_text("not an area")
    run("init", "project", *arguments).ends(code, sentence)
    assert not (folder / "project").exists()


def test_an_existing_config_is_not_replaced(folder: Path, run: Run) -> None:
    (folder / "project").mkdir()
    (folder / "project/config.yaml").write_text("mine")
    run("init", "project", "--bbox", *BOX).ends(2, "exists already")
    assert (folder / "project/config.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["area.gpkg", "area.shp", "area.geojson"])
def test_an_area_of_any_vector_format_and_crs_is_stored_in_degrees(folder: Path, run: Run, name: str) -> None:
    crs, outline = CRS, shapely.box(LEFT, TOP - 5000, LEFT + 5000, TOP)
    if name.endswith("geojson"):
        crs, outline = "EPSG:4326", shapely.box(15.0, 46.0, 15.065, 46.045)
    pyogrio.raw.write(
        folder / name, shapely.to_wkb(np.array([outline])), [], [], crs=crs, geometry_type="Polygon", driver=None
    )
    assert run("init", "project", "--area", name).code == 0
    config = config_of(folder / "project")
    assert str(config["search"]["area"]).endswith("area.geojson")
    value = json.loads((folder / "project/area.geojson").read_text())
    stored = shapely.from_geojson(json.dumps(value)).bounds
    assert stored == pytest.approx((15.0, 46.0, 15.065, 46.05), abs=0.01)
    assert config["split"]["block"] < 512


def test_an_area_without_a_crs_is_refused(folder: Path, run: Run) -> None:
    wkb = shapely.to_wkb(np.array([shapely.box(0, 0, 5000, 5000)]))
    with pytest.warns(UserWarning, match="crs"):
        pyogrio.raw.write(folder / "area.gpkg", wkb, [], [], geometry_type="Polygon")
    run("init", "project", "--area", "area.gpkg").ends(3, "area.gpkg has no CRS")
    assert not (folder / "project").exists()


@pytest.mark.parametrize(
    ("collection", "bands", "mask", "resolution"),
    [
        ("sentinel-2-l2a", ("blue", "green", "red", "nir"), "scl", 10),
        ("landsat-c2-l2", ("blue", "green", "red", "nir08", "swir16"), "qa_pixel", 30),
        ("hls2-s30", ("B02", "B03", "B04", "B8A", "B11", "B12"), "Fmask", 30),
        ("sentinel-1-rtc", ("vv", "vh"), "none", 10),
        ("cop-dem-glo-30", ("data",), "none", 30),
    ],
)
def test_a_known_collection_has_its_own_bands_mask_and_pixel_size(
    folder: Path, run: Run, collection: str, bands: tuple[str, ...], mask: str, resolution: float
) -> None:
    run("init", "project", "--bbox", "15.0", "46.0", "15.3", "46.3", "--collection", collection).ends(0)
    config = config_of(folder / "project")
    assert config["search"]["collections"] == (collection,)
    assert (config["preprocess"]["bands"], config["preprocess"]["mask"]) == (bands, mask)
    assert config["search"]["resolution"] == resolution
    assert config["preprocess"]["decibel"] == (collection == "sentinel-1-rtc")
    if collection != "sentinel-2-l2a":
        assert config["search"]["crs"] == "EPSG:32633", "the zone of the area, not that of the example"


def test_tasks_and_models_are_written(folder: Path, run: Run) -> None:
    assert run("init", "a", "--bbox", *BOX, "--task", "classification", "--model", "convnext").code == 0
    train = config_of(folder / "a")["train"]
    assert (train["task"], train["architecture"]) == ("classification", "convnext")
    assert run("init", "b", "--bbox", *BOX, "--task", "regression", "--measure", "height").code == 0
    label = config_of(folder / "b")["label"]
    assert (label["measure"], label["attribute"]) == ("height", "value")


@pytest.mark.parametrize(
    ("task", "has_line"), [("segmentation", True), ("classification", True), ("regression", False)]
)
def test_products_are_offered_where_a_map_has_classes_and_the_settings_by_an_address(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, task: str, has_line: bool
) -> None:
    assert run("init", "area", "--bbox", *BOX, "--task", task).code == 0
    text = (folder / "area/config.yaml").read_text()
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    assert f"# {source}/blob/main/docs/stages.md" in text, "a wheel has no docs"
    assert ("# with_products: true " in text) == has_line
    (folder / "area/config.yaml").write_text(text.replace("# with_products", "with_products"))
    assert check_project(folder / "area", run, monkeypatch)["with_products"] == has_line


def write_polygons(path: Path, columns: dict[str, list[Any]], *, edge: float = 40, layer: str | None = None) -> None:
    """Squares of `edge` metres, 80 metres apart and 15 in a row, from the corner of the scenes of `scene_of_bands`."""
    corners = [(LEFT + 20 + 80 * (n % 15), TOP - 20 - 80 * (n // 15)) for n in range(len(next(iter(columns.values()))))]
    shapes = np.array([shapely.to_wkb(shapely.box(x, y - edge, x + edge, y)) for x, y in corners], object)
    fields = {"fields": [*columns], "field_data": [np.array(values) for values in columns.values()]}
    options: dict[str, Any] = {"layer": layer, "append": True} if layer else {}
    pyogrio.raw.write(path, shapes, **fields, crs=CRS, geometry_type="Polygon", **options)


@pytest.fixture
def scenes(folder: Path, catalog: Catalog) -> Path:
    """The folder with a catalog of one scene of 128 x 160 pixels of 10 m."""
    catalog.add("scene", {"blue": np.full((128, 160), 4, np.uint8)}, shape=(128, 160))
    catalog.write()
    return folder


CROPS = [("field", "grove", "water")[n % 3] for n in range(150)]


def planned(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The config of a project that is checked and planned as it is."""
    monkeypatch.chdir(folder)
    for command in ("check", "plan"):
        run(command).ends(0)
    return load(Path("config.yaml"))


def test_polygons_of_the_working_folder_decide_column_classes_and_split(
    scenes: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"plot {number}" for number in range(150)]
    write_polygons(scenes / "own.gpkg", {"name": names, "landcover": CROPS, "year": [2020] * 150})
    run("init", "a/b", "--catalog", "catalog", "--bands", "blue", "--labels", "own.gpkg").ends(0)
    assert yaml.safe_load((scenes / "a/b/config.yaml").read_text())["label"]["source"] == "../../own.gpkg"
    config = planned(run, scenes / "a/b", monkeypatch)
    assert (config["label"]["attribute"], config["label"]["classes"]) == ("landcover", ("field", "grove", "water"))
    assert [config["split"][key] for key in ("method", "by", "min_valid")] == ["group", "polygon", None]


def test_points_and_numbers_are_split_so_that_each_part_has_each_class(
    scenes: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_degrees = transformer(CRS, "EPSG:4326")
    rows = ["lon,lat,code,remark"]
    for number in range(600):
        # The third class is in a strip at the edge alone.
        x, y = LEFT + 5 + 10 * (number * 7 % 160), TOP - 5 - 10 * (number * 11 % 128)
        degrees = to_degrees.transform(x, y)
        rows.append(f"{degrees[0]:.7f},{degrees[1]:.7f},{30 if x < LEFT + 160 else 10 + number % 2},")
    (scenes / "points.csv").write_text("\n".join(rows))
    assert run("init", "p", "--catalog", "catalog", "--bands", "blue", "--labels", "points.csv").code == 0
    config = planned(run, scenes / "p", monkeypatch)
    assert (config["label"]["attribute"], config["label"]["classes"]) == ("code", ("10", "11", "30"))
    assert config["split"]["method"] == "blocks"


def test_a_raster_decides_classes_codes_and_colours(scenes: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.resize(np.array([2, 5, 9], np.uint8), (128, 160))
    profile = {"driver": "GTiff", "width": 160, "height": 128, "count": 1, "dtype": "uint8", "crs": CRS}
    with rasterio.open(scenes / "cover.tif", "w", **profile, transform=from_origin(LEFT, TOP, 10, 10)) as raster:
        raster.write(values, 1)
        raster.write_colormap(1, {2: (255, 0, 0, 255), 5: (0, 128, 0, 255), 9: (0, 0, 255, 255)})
    init = ("--catalog", "catalog", "--bands", "blue", "--labels", "cover.tif")
    assert run("init", "r", *init).code == 0
    run("init", "two", *init, "--classes", "a", "b").ends(3, "the 3 values 2, 5, 9", "--classes names 2")
    assert run("init", "three", *init, "--classes", "a", "b", "c").code == 0
    assert config_of(scenes / "three")["label"]["classes"] == ("a", "b", "c")
    config = planned(run, scenes / "r", monkeypatch)
    assert (config["label"]["classes"], config["label"]["codes"]) == (("2", "5", "9"), (2, 5, 9))
    assert config["report"]["colors"] == ("#ff0000", "#008000", "#0000ff")


def test_labels_of_a_measure_name_it(scenes: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_polygons(scenes / "trees.gpkg", {"species": CROPS, "height": [n / 9 for n in range(150)]})
    init = ("--catalog", "catalog", "--bands", "blue", "--labels", "trees.gpkg", "--task", "regression")
    assert run("init", "m", *init).code == 0
    config = planned(run, scenes / "m", monkeypatch)
    assert (config["label"]["attribute"], config["label"]["measure"]) == ("height", "height")


def test_an_area_whose_scenes_only_a_server_knows_is_split_by_its_labels(folder: Path, run: Run) -> None:
    write_polygons(folder / "own.gpkg", {"class": CROPS})
    west, south, east, north = transformer(CRS, "EPSG:4326").transform_bounds(LEFT, TOP - 2000, LEFT + 2000, TOP)
    box = [str(degrees) for degrees in (west, south, east, north)]
    done = run("init", "p", "--bbox", *box, "--labels", "own.gpkg")
    assert (done.code, "150 polygons of 3 classes by the column class" in done.stdout) == (0, True), done.stderr
    split = config_of(folder / "p")["split"]
    assert (split["by"], split["chip"]) == ("polygon", 32)
    # A chip with one class has no polygons to keep together.
    run("init", "q", "--bbox", *box, "--labels", "own.gpkg", "--task", "classification").ends(0)
    assert config_of(folder / "q")["split"]["method"] == "blocks"


def test_labels_that_leave_a_choice_or_cannot_be_split_are_refused_in_a_sentence(scenes: Path, run: Run) -> None:
    write_polygons(scenes / "two.gpkg", {"crop": CROPS, "owner": [*reversed(CROPS)]})
    rare = ["rare" if n in (3, 70) else name for n, name in enumerate(CROPS)]
    write_polygons(scenes / "rare.gpkg", {"class": rare})
    write_polygons(scenes / "layers.gpkg", {"class": CROPS}, layer="a")
    write_polygons(scenes / "layers.gpkg", {"class": CROPS}, layer="b")
    write_polygons(scenes / "one.gpkg", {"class": ["field"] * 20})
    (scenes / "own.kml").touch()
    sentences = {
        ("none.gpkg",): "there is no file none.gpkg; give the labels as a vector file",
        ("two.gpkg",): "two.gpkg has the columns crop, owner; name the one of the labels with --attribute",
        ("two.gpkg", "--attribute", "plot"): "two.gpkg has no column plot; it has crop, owner",
        ("rare.gpkg",): "each class needs 3 polygons or more, and rare has 2",
        ("layers.gpkg",): "layers.gpkg has the layers a, b; choose one with --layer",
        ("one.gpkg",): "one.gpkg has only the value field in the column class, and a model needs two classes",
        ("one.gpkg", "--task", "regression"): "none of them has only numbers, which --task regression needs",
        ("catalog",): "catalog is a folder; give the labels as a vector file",
        ("own.kml",): "--labels own.kml is KML, which is not read; give a vector file",
    }
    for words, sentence in sentences.items():
        done = run("init", "p", "--catalog", "catalog", "--bands", "blue", "--labels", *words)
        assert (sentence in done.stderr, done.code in (2, 3), done.stderr.count("\n")) == (True, True, 1), done.stderr
        assert not (scenes / "p").exists()
    run("init", "p", "--catalog", "catalog", "--bands", "blue", "--labels", "layers.gpkg", "--layer", "b").ends(0)
    assert config_of(scenes / "p")["label"]["layer"] == "b"


def test_examples_in_comments_are_settings(folder: Path, run: Run) -> None:
    assert run("init", "area", "--bbox", *BOX).code == 0
    text = (folder / "area/config.yaml").read_text()
    head, *rest = text.split("\nresults:")
    with_examples = "\nresults:".join([head, *rest[:1]]).replace("\n  # ", "\n  ")
    for line in re.findall(r"^# (\w+: .+)$", text, re.MULTILINE):
        assert check(yaml.safe_load(f"{with_examples}\n{line}\n"))
    assert text.count("\n# ") >= 4


def test_title_author_and_licence_are_stated_once_or_asked_for(folder: Path, run: Run) -> None:
    bare = run("init", "a", "--bbox", *BOX)
    assert "who to cite and under which licence is not stated yet: --author and --license" in bare.stdout
    stated = ("--title", "Woods", "--author", "Ada Lovelace", "--license", "CC-BY-4.0")
    done = run("init", "b", "--bbox", *BOX, *stated)
    assert "not stated" not in done.stdout
    config = config_of(folder / "b")
    stated_values = config["report"]["title"], config["crate"]["author"], config["crate"]["license"]
    assert stated_values == ("Woods", "Ada Lovelace", "CC-BY-4.0")


def test_a_catalog_on_disk_decides_collection_bands_mask_and_blocks(
    folder: Path, catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (200, 300)
    bands = {name: np.full(shape, 4, np.uint8) for name in ("blue", "green", "red", "nir", "SCL")}
    catalog.add("scene", bands, shape=shape)
    catalog.write()
    assert run("init", "project", "--catalog", "catalog").code == 0
    config = check_project(folder / "project", run, monkeypatch)
    assert config["search"]["collections"] == ("sentinel",)
    assert config["preprocess"]["bands"] == ("blue", "green", "red", "nir")
    assert config["preprocess"]["mask"] == "SCL"
    assert shape_of(config) == shape
    assert empty_splits(shape, plan_of(config["split"])) == []


def test_a_catalog_of_other_bands_or_dates_is_explained(folder: Path, catalog: Catalog, run: Run) -> None:
    catalog.add("scene")
    catalog.write()
    completed = run("init", "project", "--catalog", "catalog")
    assert "name --bands of blue, red, scl" in completed.stderr
    completed = run("init", "project", "--catalog", "catalog", "--bands", "blue", "swir")
    assert "the scenes have no swir; name --bands of blue, red, scl" in completed.stderr
    completed = run("init", "project", "--catalog", "catalog", "--datetime", "2021")
    assert "no scene matches" in completed.stderr
    assert "without the dates 1 of 1 would" in completed.stderr
    assert not (folder / "project").exists()


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("source", ["catalog", "chips"])
def test_catalog_chips_and_model_of_the_command_line_are_the_same_files_in_the_new_project(
    source: str, absolute: bool, folder: Path, catalog: Catalog, run: Run
) -> None:
    catalog.add("scene", {"blue": np.full((200, 300), 4, np.uint8)}, shape=(200, 300))
    catalog.write()
    write_world(folder)
    import_set(run, folder)
    (folder / "net.py").write_text(NET)
    start = f"{folder}/" if absolute else ""
    options = ["--bands", "blue"] if source == "catalog" else []
    place = "catalog" if source == "catalog" else "set"
    run("init", "a/b", f"--{source}", start + place, "--model", f"{start}net.py:Net", *options).ends(0)
    config = yaml.safe_load((folder / "a/b/config.yaml").read_text())
    start = start or "../../"
    assert (config["search"]["catalog"] if source == "catalog" else config["chip_set"]) == start + place
    assert config["train"]["architecture"] == f"{start}net.py:Net"
    completed = run("check", "a/b")
    mistakes = [line for line in completed.stderr.splitlines() if "error" in line]
    assert [line for line in mistakes if "label.source labels.gpkg is missing" not in line] == []
    assert len(mistakes) == (source == "catalog")


@pytest.mark.parametrize("task", ["segmentation", "classification", "multilabel", "regression"])
def test_the_embedded_sample_is_a_project_of_its_own(folder: Path, run: Run, task: str) -> None:
    assert run("init", "project", "--sample", "--task", task).code == 0
    run("check", "project").ends(0)
    config = config_of(folder / "project")
    assert config["train"]["task"] == task
    assert (folder / "project/sample/LICENSE-EUPL-1.2.txt").is_file(), "the sample has a licence of its own"
    assert not list((folder / "project").rglob("*.py"))


def test_the_sample_takes_no_option_that_its_config_would_ignore(folder: Path, run: Run) -> None:
    run("init", "project", "--sample", "--model", "net.py:Net", "--classes", "a", "b").ends(
        2, "--sample has a config of its own, to be edited; omit --classes, --model"
    )
    assert not (folder / "project").exists()


def test_init_prints_the_commands_of_the_readme(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    from eopipe.cli import main

    assert main(["init", "my-area", "--bbox", *BOX]) == 0
    output = capsys.readouterr().out
    commands = re.findall(r"^  ((?:cd|eopipe) .+)$", output, re.MULTILINE)
    block = next(b for b in (ROOT / "README.md").read_text().split("```") if "eopipe init my-area" in b)
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert commands == [line for line in lines if line.startswith(("cd ", "eopipe ")) and "eopipe init" not in line]


def test_a_project_for_a_chip_set_splits_its_groups(folder: Path, run: Run) -> None:
    write_world(folder, 6, 5)
    import_set(run, folder)
    assert run("init", "project", "--chips", "set", "--model", "convnext").code == 0
    run("check", "project").ends(0)
    config = config_of(folder / "project")
    assert [config["split"][key] for key in ("method", "by", "attribute")] == ["group", "column", "group"]
    assert (config["train"]["task"], config["train"]["architecture"]) == ("segmentation", "convnext")
    assert (folder / "project" / config["chip_set"]).resolve() == folder / "set"


@pytest.mark.parametrize(("step", "block_km"), [(200_000, 20), (6_000, 5), (400, 0.2)])
def test_a_project_for_chips_by_class_has_blocks_of_their_scale(
    folder: Path, run: Run, step: int, block_km: float
) -> None:
    for number in range(49):
        place = {"left": 3e5 + step * (number % 7), "top": 5e6 - step * (number // 7)}
        write_chip(folder / f"classes/{'ab'[number % 2]}/c{number}.tif", np.ones((EDGE, EDGE), np.uint8), **place)
    assert run("import", "set", "--folders", "classes").code == 0
    assert run("init", "project", "--chips", "set").code == 0
    run("check", "project").ends(0)
    config = config_of(folder / "project")
    assert (config["train"]["task"], config["split"]["block_km"]) == ("classification", block_km)


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        (("--bbox", *BOX), "the chips of --chips have their bands, labels and places; omit --bbox", 2),
        (("--task", "regression"), "--task regression is not for chip sets, whose masks are classes", 2),
        (("--sample",), "--sample has a config of its own, to be edited; omit --chips", 2),
    ],
)
def test_a_chip_set_has_what_scenes_need_options_for(
    folder: Path, run: Run, arguments: tuple[str, ...], sentence: str, code: int
) -> None:
    run("init", "project", "--chips", "set", *arguments).ends(code, sentence)
    assert not (folder / "project").exists()


def test_chips_too_near_to_each_other_are_no_project(folder: Path, run: Run) -> None:
    for name in "ab":
        write_chip(folder / f"classes/{name}/c.tif", np.ones((EDGE, EDGE), np.uint8))
    assert run("import", "set", "--folders", "classes").code == 0
    run("init", "project", "--chips", "set").ends(2, "in 1 blocks of 0.1 km", "import them with --group")
    assert run("init", "project", "--chips", "elsewhere").code == 3
    assert not (folder / "project").exists()


def test_title_and_authors_are_stated_once_for_report_catalog_and_crate() -> None:
    people = {"author": "Ada Lovelace", "coauthors": ["Jo March 0000-0002-1825-0097; Orchard House"]}
    scenes = {"search": {"catalog": "catalog"}, "label": {"source": "labels.gpkg"}}
    config = check(scenes | {"report": {"title": "Woods"}, "crate": people})
    assert all("--title Woods" in options(config, name) for name in ("report", "catalog", "crate"))
    assert config["report"]["author"] == "Ada Lovelace, Jo March"
    assert check(scenes | {"report": {"author": "A."}, "crate": people})["report"]["author"] == "A."
    with pytest.raises(
        UsageError, match=r"catalog has no setting title of its own; set report.title, which is for all"
    ):
        check(scenes | {"catalog": {"title": "Maps"}})
