"""`eopipe check` finds every mistake of a config that needs no images, and lists them together."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from affine import Affine
from builders import write_features
from odc.geo.geobox import GeoBox
from scenery import CRS, LEFT, SECTIONS, STEP, TOP, Catalog, Run, search_outputs, write_config, write_raster
from shapely.geometry import box

from eopipe.contract import stage
from eopipe.errors import BadInputError
from eopipe.labels.write import check_label_file
from eopipe.text_files import write_json
from eopipe.tiles.cells import Frame

SHAPE = (96, 160)
# A config that is right; a case changes one thing in it.
RIGHT = SECTIONS | {"split": {"method": "blocks", "block": 32, "chip": 16}, "train": {}}
RIGHT["label"] = SECTIONS["label"] | {"classes": ["other", "forest"]}
SERVER = {"catalog": None, "url": "https://stac.example.org/v1"}
OF_2018, OF_4_YEARS = SERVER | {"datetime": "2018-03/2018-10"}, SERVER | {"datetime": "2018/2021"}
BOX_OF_SERVER = SERVER | {"bbox": [15.0, 46.04, 15.02, 46.06], "resolution": 10.0, "crs": CRS}
TINY = BOX_OF_SERVER | {"bbox": [15.0, 46.049, 15.001, 46.05]}
SEASONS = {"method": "median", "stack": "season", "parts": ["MAM", "DJF"]}
YEARS = {"method": "median", "stack": "year", "parts": ["2017", "2021"]}


@pytest.fixture
def folder(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two scenes, labels, an area and a model of its own."""
    monkeypatch.chdir(tmp_path)
    catalog.add_months(SHAPE, 2)
    catalog.write()
    write_raster(tmp_path / "labels.tif", np.ones(SHAPE, np.uint8))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("not GeoJSON")
    (tmp_path / "area.gpkg").write_bytes(b"SQLite format 3\0\xff")
    return tmp_path


# As a config derives them from preprocess.bands.
BANDS = ("--grid-assets", "blue", "red")


def write(folder: Path, **changes: dict[str, Any]) -> None:
    write_config(folder, RIGHT, **changes)


def test_a_config_without_a_mistake_is_valid_in_a_project_folder_without_naming_it(folder: Path, run: Run) -> None:
    write(folder)
    completed = run("check")
    assert (completed.code, completed.stderr) == (0, "")


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"train": {"processes": 64}}, "train.processes is 64, and this machine has 2 cores"),
        ({"label": {"before": "labels.tif"}}, "label.before gives the change between two dates, and an image has one"),
        ({"train": {"device": "cuda"}}, "" if torch.cuda.is_available() else "train.device is cuda, and PyTorch finds"),
    ],
)
def test_what_this_machine_or_an_image_does_not_have_is_a_warning(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, changes: dict[str, dict[str, Any]], warning: str
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    write(folder, **changes)
    assert (f"warning: {warning}" in run("check").ends(0).stdout) == bool(warning)


MISTAKES: list[tuple[dict[str, dict[str, Any]], str, int]] = [
    # Files.
    ({"label": {"source": "nolabels.gpkg"}}, "label.source nolabels.gpkg is missing: there is no such file", 3),
    ({"label": {"source": "empty"}}, "label.source empty is a folder; give one file in it", 3),
    ({"search": {"area": "noarea.geojson"}}, "search.area noarea.geojson is missing: there is no such file", 3),
    ({"search": {"area": "notes.txt"}}, "search.area: notes.txt is not valid JSON", 3),
    (
        {"search": {"area": "area.gpkg"}},
        "which search.area has to be; `eopipe init NAME --area area.gpkg` writes it",
        3,
    ),
    # Scenes are of May and June 2023.
    ({"composite": SEASONS}, "composite.parts has DJF, in which period all has no scene; it has scenes in MAM;", 3),
    ({"composite": YEARS | {"parts": ["2017"]}}, "composite.parts has 2017, but all scenes are in 2023", 3),
    (
        {"search": OF_2018, "composite": SEASONS},
        "composite.parts has DJF, which search.datetime 2018-03/2018-10 exc",
        3,
    ),
    (
        {"search": OF_4_YEARS, "composite": YEARS},
        "composite.parts has 2017, which search.datetime 2018/2021 excludes",
        3,
    ),
    (
        {"train": {"architecture": "own:Net", "model_files": ["own.py"]}},
        "train.model_files own.py is missing: there",
        3,
    ),
    ({"search": {"catalog": "nowhere"}}, "search.catalog nowhere is missing: there is no such file or folder", 3),
    ({"search": {"catalog": "labels.tif"}}, "labels.tif is a file; give the folder of a static STAC catalog", 3),
    ({"search": {"catalog": "empty"}}, "search: empty has no catalog.json", 3),
    ({"train": {"init": "nomodel"}}, "train.init nomodel is missing: there is no such folder", 3),
    ({"train": {"init": "empty"}}, "empty has no model.json", 3),
    # Dates.
    ({"search": {"datetime": "01.08.2023-31.08.2023"}}, "search.datetime: '01.08.2023-31.08.2023' is not a date", 2),
    ({"search": {"datetime": "2023-13-01/2023-14-01"}}, "search.datetime: '2023-13-01/2023-14-01' is not a date", 2),
    ({"search": {"datetime": "2023-09-01/2023-08-01"}}, "search.datetime: the interval 2023-09-01/2023-08-01 ends", 2),
    ({"split": {"method": "temporal", "dates": ["2023-06-31"]}}, "split.dates: '2023-06-31' is not a date", 2),
    # Areas.
    ({"search": {"bbox": [500.0, 2.0, 3.0, 4.0]}}, "search.bbox: bbox 500.0 2.0 3.0 4.0 is not west south", 2),
    ({"search": {"bbox": [15.0, 46.1, 15.1, 46.0]}}, "is not west south east north in degrees", 2),
    ({"search": {"crs": "EPSG:99999"}}, "search.crs: there is no CRS EPSG:99999", 2),
    ({"search": {"crs": "utm33"}}, "search.crs is 'utm33': write CRS of the grid as EPSG:code; auto: the one of", 2),
    # Classes.
    ({"label": {"classes": "forest"}}, "label.classes is 'forest': write a list, classes: [forest, …]", 2),
    ({"label": {"classes": ["forest"]}}, "label.classes has one class, forest; at least two are needed", 2),
    ({"label": {"classes": ["forest", "forest"]}}, "label.classes has forest twice", 2),
    ({"label": {"classes": [True, "forest"]}}, "label.classes.0 is True: write text, in quotes", 2),
    ({"label": {"codes": [1]}}, "label.codes has 1 values for 2 classes", 2),
    ({"label": {"codes": [1, 1]}}, "2 different numbers in label.codes", 2),
    ({"label": {"bins": [50.0, 20.0]}}, "label.bins has 2 edges; 2 classes need 1", 2),
    # Models.
    ({"train": {"architecture": "resnet"}}, "there is no model resnet; use unet, convnext", 2),
    ({"train": {"architecture": "nomodule:Net"}}, "model nomodule:Net cannot be imported", 2),
    ({"train": {"architecture": "torch.nn:NoNet"}}, "model torch.nn:NoNet cannot be imported", 2),
    ({"train": {"architecture": "torch.nn:Conv2d"}}, "model torch.nn:Conv2d cannot be built", 2),
    ({"train": {"arguments": ["hiden=3"]}}, "UNet does not take hiden", 2),
    ({"train": {"freeze": ["encoder."]}}, "train.freeze is encoder., but no parameter has that prefix", 2),
    ({"train": {"head_learning_rate": 0.01}}, "train.head_learning_rate is for the new head of a training from", 2),
    # Numbers.
    ({"train": {"crop": 15}}, "train.crop is 15; choose a multiple of 4 up to ", 2),
    ({"train": {"crop": 400}}, "train.crop is 400; choose a multiple of 4 up to ", 2),
    ({"train": {"epochs": "many"}}, "train.epochs is 'many': write a whole number", 2),
    ({"train": {"epochs": 2.5}}, "train.epochs is 2.5: write a whole number", 2),
    ({"train": {"epochs": -2}}, "train.epochs is -2: write at least 1", 2),
    ({"train": {"width": None}}, "train.width has no value; write one, or remove the line", 2),
    ({"train": {"learning_rate": "4e-3s"}}, "train.learning_rate is '4e-3s': write a number", 2),
    ({"train": {"deterministic": "maybe"}}, "train.deterministic is 'maybe': write true or false", 2),
    ({"train": {"task": "detection"}}, "write 'classification', 'multilabel', 'regression' or 'segmentation'", 2),
    ({"search": {"max_cloud": 300}}, "search.max_cloud is 300: write at most 100", 2),
    ({"split": {"chip": 0}}, "split.chip is 0: write at least 8", 2),
    ({"split": {"fractions": [70, 15, 15]}}, "write fractions of 1, such as [0.7, 0.15, 0.15], not percent", 2),
    ({"split": {"fractions": [0.9, 0.3, 0.1]}}, "split.fractions needs three numbers", 2),
    # Scenes of a catalog on disk, and the grid that they give.
    ({"search": {"collections": ["sentinel-9"]}}, "sentinel-9", 3),
    ({"search": {"datetime": "2022"}}, "search: no scene matches", 3),
    ({"search": {"assets": ["blue", "red", "scl", "swir"]}}, "scenes lack assets", 3),
    ({"preprocess": {"bands": ["blue", "swir"]}}, "preprocess needs swir, which search.assets does not have", 2),
    ({"preprocess": {"bands": ["blue", "blue"]}}, "preprocess.bands has blue twice", 2),
    ({"label": {"source": None, "asset": "cover"}}, "label.asset cover is not in search.assets; it has blue, red", 2),
    ({"split": {"block": 512}}, "split has no chip: 1 block of 512 px on a grid of 96 x 160", 3),
    ({"split": {"chip": 128, "block": 128}}, "does not fit into a grid of 96 x 160", 3),
    ({"split": {"block": 8}}, "split.block: 16", 3),
    ({"trials": {"space": {"width": [8]}, "sampler": "tpe", "count": 10}}, "trials.sampler is 'tpe': write 'grid'", 2),
    # A server is not asked: area and resolution give the grid.
    ({"search": TINY}, "does not fit into a grid of 12 x 8; choose a smaller split.chip", 3),
    ({"search": BOX_OF_SERVER, "split": {"block": 512, "chip": 128}}, "1 block of 512 px on a grid of 223 x 155", 3),
]


@pytest.mark.parametrize(("changes", "sentence", "code"), MISTAKES, ids=[sentence[:40] for _, sentence, _ in MISTAKES])
def test_one_mistake_is_one_sentence_with_its_key(
    folder: Path, run: Run, changes: dict[str, dict[str, Any]], sentence: str, code: int
) -> None:
    write(folder, **changes)
    completed = run("check", "config.yaml").ends(code, sentence)
    assert completed.stderr.count("\n") == 1, "no second message follows from the mistake"
    for idiom in ("tuple", "validation", "dictionary", "input should", "Input should"):
        assert idiom not in completed.stderr


def write_shapes(path: Path, *values: Any, left: float = 15.0, **other: Any) -> None:
    """A GeoJSON file of polygons with these classes, side by side around the scenes."""
    places = [(left + 0.02 * n, value) for n, value in enumerate(values)]
    write_features(path, *((box(west, 45.9, west + 0.02, 46.1), {"class": value} | other) for west, value in places))


VECTOR = {"source": "shapes.geojson"}
HEIGHT = {"measure": "height", "unit": "m"}
# Of a server the grid is not known, and the area says where labels are needed.
AREA = SERVER | {"bbox": [15.0, 46.04, 15.02, 46.06]}
LABELS: list[tuple[dict[str, dict[str, Any]], tuple[Any, ...], str]] = [
    ({}, ("forest", "oter"), "has features of class oter; the classes are other, forest"),
    ({}, ("forest", ""), "has features of class ''; the classes are other, forest"),
    ({"label": {"attribute": "kind"}}, ("forest",), "has no attribute kind; it has class"),
    ({"label": {"layer": "north"}}, ("forest",), "has no layer north; it has shapes"),
    ({"label": HEIGHT, "train": {"task": "regression"}}, ("tall",), "has values of class that are not numbers: tall"),
    ({}, (None,), "has no label on the grid; compare its location and values with the area"),
    ({"search": AREA}, ("forest", "oter"), "has features of class oter; the classes are other, forest"),
    ({"search": SERVER}, ("forest", "oter"), "has features of class oter; the classes are other, forest"),
]


@pytest.mark.parametrize(("changes", "values", "sentence"), LABELS)
def test_shapes_that_the_label_stage_refuses_are_refused_before_a_download(
    folder: Path, run: Run, changes: dict[str, dict[str, Any]], values: tuple[Any, ...], sentence: str
) -> None:
    write_shapes(folder / "shapes.geojson", *values)
    label = VECTOR | changes.get("label", {})
    write(folder, **changes | {"label": label})
    completed = run("check").ends(3, f"label.source: shapes.geojson {sentence}")
    assert completed.stderr.count("\n") == 1


@pytest.mark.parametrize("search", [{}, AREA], ids=["grid", "area"])
def test_labels_beside_the_area_are_refused_before_a_download(folder: Path, run: Run, search: dict[str, Any]) -> None:
    write_shapes(folder / "shapes.geojson", "forest", left=20.0)
    write(folder, label=VECTOR, search=search)
    run("check").ends(3, "label.source: shapes.geojson has no label on the grid; compare its location")
    write_shapes(folder / "shapes.geojson", "forest")
    shapes = json.loads((folder / "shapes.geojson").read_text())
    for feature in shapes["features"]:
        feature["geometry"]["coordinates"] = [[p[::-1] for p in ring] for ring in feature["geometry"]["coordinates"]]
    (folder / "shapes.geojson").write_text(json.dumps(shapes))
    assert "has no label on the grid; longitude and latitude (x and y) seem swapped" in run("check").stderr
    write_raster(folder / "labels.tif", np.ones(SHAPE, np.uint8), left=700000.0)
    write(folder, search=search)
    assert "label labels.tif covers 700000, 5.09904e+06, 701600, 5.1e+06 in EPSG:32633, which" in run("check").stderr


def test_a_raster_that_the_label_stage_refuses_is_refused_before_a_download(folder: Path, run: Run) -> None:
    write_raster(folder / "labels.tif", np.full(SHAPE, 7, np.uint8))
    for search in ({}, AREA):
        write(folder, search=search)
        run("check").ends(3, "label labels.tif has values that belong to no class:", "no class")
    write(folder, label={"values": ["other=7", "forest=wood"]})
    assert "label.values has a text value, but a raster holds numbers" in run("check").stderr
    # Where no area and no grid is known, it is only opened.
    (folder / "labels.tif").write_bytes(b"no raster")
    write(folder, search=SERVER)
    assert "label labels.tif (labels.tif) cannot be read" in run("check").stderr
    write_raster(folder / "labels.tif", np.zeros(SHAPE, np.uint8))
    write(folder)
    assert "labels.tif has no label on the grid" in run("check").stderr
    write(folder, label=HEIGHT, train={"task": "regression"})
    assert "labels.tif has no value on the grid" in run("check").stderr


def test_of_a_large_raster_some_windows_all_over_the_grid_are_read(tmp_path: Path) -> None:
    pixels = np.ones((2048, 2560), np.uint8)
    pixels[1024:] = 7
    source = write_raster(tmp_path / "labels.tif", pixels)
    label = {port.name: port.default for port in stage("label").settings}
    cell = Frame.of_grids([GeoBox(pixels.shape, Affine(STEP, 0, LEFT, 0, -STEP, TOP), CRS)]).cells[0]
    with pytest.raises(BadInputError, match="belong to no class") as error:
        check_label_file(source, label, cell)
    counts = [int(text.replace(",", "")) for text in re.findall(r"^ +[17] +([\d,]+)", str(error.value), re.MULTILINE)]
    assert 0 < sum(counts) <= 16 * 256**2
    # What is not labelled in those may be elsewhere.
    write_raster(source, np.zeros((2048, 2560), np.uint8))
    check_label_file(source, label, cell)


def test_shapes_without_a_class_are_counted_and_named_by_check_and_the_stage(
    folder: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = (
        "2 of 4 shapes of shapes.geojson have no value of class (NULL), so they label no pixel: in the order of the "
        "file, from 1, 2, 4; give them a value, or remove them"
    )
    write_shapes(folder / "shapes.geojson", "forest", None, "other", None)
    write(folder, label=VECTOR)
    completed = run("check").ends(0)
    assert f"warning: {sentence}\n" in completed.stdout
    assert f"warning: {sentence}\n" in run("plan", "--out", "plan").stdout
    write_json(folder / "grid.json", {"crs": CRS, "shape": SHAPE, "transform": [STEP, 0.0, LEFT, 0.0, -STEP, TOP]})
    arguments = ("--grid", "grid.json", "--labels", "labels.zarr", "--source", "shapes.geojson", "--chunk", 16)
    logging.getLogger("eopipe").setLevel(logging.INFO)
    assert run("label", *arguments, "--shard", 64, "--classes", "other", "forest").code == 0
    assert f"event=shapes_without_value source=shapes.geojson reason='{sentence}'" in caplog.text


TEXTS = {
    "search:\n\tcatalog: catalog\n": "line 2 has a tab; indent with spaces",
    "search: [\n": "config.yaml is not valid YAML",
    "train:\n  epochs: 3\ntrain:\n  batch: 8\n": "train on lines 1 and 3",
    "train: {seed: " + "9" * 5001 + "}\n": "config.yaml is not valid YAML: Exceeds the limit (4300 digits)",
    "- search\n": "is not a config: write sections such as `search:`",
    "search: catalog\n": "search is 'catalog': write `name: value` lines below it",
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_not_a_config_is_explained_with_the_line(folder: Path, run: Run, text: str) -> None:
    (folder / "config.yaml").write_text(text)
    run("check", "config.yaml").ends(2, TEXTS[text])


def test_an_empty_section_and_dates_without_quotes_are_accepted(folder: Path, run: Run) -> None:
    write(folder)
    text = (folder / "config.yaml").read_text().replace("search:", "fetch:\nsearch:\n  datetime: 2023-05-01", 1)
    (folder / "config.yaml").write_text(text)
    assert run("check").code == 0


def test_mistakes_of_settings_files_dates_and_model_are_listed_together(folder: Path, run: Run) -> None:
    write(
        folder,
        search={"datetime": "yesterday"},
        label={"source": "nolabels.gpkg", "classes": ["forest"]},
        train={"architecture": "resnet"},
        split={"chipp": 8},
    )
    completed = run("check").ends(2)
    head, *lines = completed.stderr.rstrip().split("\n")
    assert head == "error: config.yaml: 5 mistakes"
    for key in ("search.datetime", "label.source", "label.classes", "train.architecture", "chipp"):
        assert sum(key in line for line in lines) == 1, key


def test_a_model_is_checked_without_the_memory_of_its_weights(folder: Path, run: Run) -> None:
    # More than twenty gigabytes of weights.
    write(folder, train={"width": 4096, "depth": 2})
    assert run("check").code == 0


def test_a_model_beside_the_config_is_imported_and_built_and_its_mistakes_have_a_line(folder: Path, run: Run) -> None:
    text = "from torch import nn\n\nclass Net(nn.Conv2d):\n    def __init__(self, bands, classes):\n"
    (folder / "checked_net.py").write_text(text + "        super().__init__(bands, classes, 1)\n")
    for name in ("checked_net:Net", "checked_net.py:Net"):
        write(folder, train={"architecture": name})
        assert (run("check").code, run("check").stderr) == (0, "")
    # The second is no error of the meta device, on which the model is built.
    for name in ("clases", "metadata"):
        (folder / "checked_net.py").write_text(text + f"        super().__init__(bands, {name}, 1)\n")
        run("check").ends(2, f"cannot be built: checked_net.py line 5: NameError: name '{name}' is not defined")
    write(folder, train={"architecture": "no_net.py:Net"})
    assert "train.architecture names no_net.py, but there is no such file in" in run("check").stderr


TABLE = """\
import torch

class Net(torch.nn.Module):
    def __init__(self, bands, classes, size=16):
        super().__init__()
        self.layer = torch.nn.Conv2d(bands, classes, 1)
        self.positions = torch.nn.Parameter(torch.zeros(size, size))

    def forward(self, x):
        return self.layer(x) + self.positions
"""


def test_a_model_that_does_not_take_the_chips_is_refused_before_a_download(folder: Path, run: Run) -> None:
    (folder / "table_net.py").write_text(TABLE)
    write(folder, train={"architecture": "table_net.py:Net"}, split={"chip": 16})
    assert (run("check").code, run("check").stderr) == (0, "")
    write(folder, train={"architecture": "table_net.py:Net"}, split={"chip": 32})
    run("check").ends(2, "fails with a chip of", "32 x 32 pixels")
    write(folder, train={"architecture": "table_net.py:Net", "crop": 8}, split={"chip": 16})
    assert "8 x 8 pixels" in run("check").stderr
    # What needs values cannot be tried without them.
    (folder / "table_net.py").write_text(TABLE.replace("return self", "assert x.max().item() >= 0; return self"))
    write(folder, train={"architecture": "table_net.py:Net"}, split={"chip": 16})
    assert (run("check").code, run("check").stderr) == (0, "")


RETURNS = """\
from torch import nn

class Net(nn.Module):
    def __init__(self, bands, classes, kernel=1):
        super().__init__()
        self.layer = nn.Conv2d(bands, classes, kernel)

    def forward(self, x):
        y = self.layer(x)
        return RESULT
"""
EXPECTED = "(1, 2, 16, 16) (batch, class, row, column)"
FLOATS = "where logits of shape (batch, classes, height, width) are expected"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("y.argmax(1)", f"the model returns (1, 16, 16) of int64, {FLOATS}"),
        ("y.argmax(1, keepdim=True)", "return them before their argmax, which cannot be trained"),
        ("(y, y)", f"the model returns a tuple, {FLOATS}"),
        ("{'map': y, 'aux': y}", f"the model returns a mapping of map, aux, {FLOATS}"),
        ("y[:, :1]", f"(1, 1, 16, 16) instead of {EXPECTED}; its last layer needs 2 channels"),
        ("y.mean((2, 3))", f"(1, 2, 1, 1) instead of {EXPECTED}; one output for a whole"),
    ],
)
def test_a_model_that_returns_no_logits_is_told_what_came(folder: Path, run: Run, result: str, message: str) -> None:
    (folder / "own_net.py").write_text(RETURNS.replace("RESULT", result))
    write(folder, train={"architecture": "own_net.py:Net"})
    completed = run("check").ends(2, message)
    assert "see train.arguments" not in completed.stderr


@pytest.mark.parametrize(
    ("result", "arguments", "is_displaced"),
    [("y", ["kernel=1"], False), ("y", ["kernel=3"], True), ("y[:, :, ::4, ::4]", ["kernel=1"], False)],
)
def test_a_model_whose_map_is_stretched_is_a_warning(
    folder: Path, run: Run, result: str, arguments: list[str], is_displaced: bool
) -> None:
    (folder / "own_net.py").write_text(RETURNS.replace("RESULT", result))
    write(folder, train={"architecture": "own_net.py:Net", "arguments": arguments})
    completed = run("check").ends(0)
    sentence = "warning: model own_net.py:Net gives maps of 14 x 14 pixels for chips of 16 x 16, which are stretched"
    assert (sentence in completed.stdout) == is_displaced


def test_a_model_that_needs_other_arguments_lists_those_that_it_takes(folder: Path, run: Run) -> None:
    (folder / "own_net.py").write_text(RETURNS.replace("kernel=1", "kernel, dropout=0.1").replace("RESULT", "y"))
    write(folder, train={"architecture": "own_net.py:Net"})
    run("check").ends(
        2,
        "model own_net.py:Net cannot be built: Net needs kernel: set it in train.arguments as kernel=value",
        "it takes bands, classes, kernel, dropout, and eopipe gives bands, classes, width, depth, names",
    )
    write(folder, train={"architecture": "own_net.py:Net", "arguments": ["kernel=1", "drop=2"]})
    assert "Net does not take drop; it takes bands, classes, kernel, dropout" in run("check").stderr


FIXED = """\
from torch import nn

class Net(nn.Conv2d):
    def __init__(self):
        super().__init__(BANDS, CLASSES, 1)
"""


@pytest.mark.parametrize(
    ("composite", "search", "bands"),
    [
        # Scenes are of May and June of a year.
        ({"stack": "season"}, {}, 4),
        ({"stack": "year"}, {}, 2),
        ({"stack": "month"}, {}, 4),
        ({"stack": "season", "parts": ["MAM", "JJA", "SON"]}, SERVER | {"datetime": "2023"}, 6),
        ({"stack": "season"}, SERVER | {"datetime": "2023"}, 0),
        ({"method": "none", "stack": "season"}, {}, 2),
    ],
)
def test_a_model_of_stacked_dates_is_tried_where_its_bands_are_known(
    folder: Path, run: Run, composite: dict[str, Any], search: dict[str, Any], bands: int
) -> None:
    warning = "warning: model fixed_net.py:Net was built, but not tried on a chip"
    settings = {"composite": {"method": "median"} | composite, "search": search}
    for excess in (0, 1):
        text = FIXED.replace("BANDS", str((bands or 9) + excess)).replace("CLASSES", "2")
        (folder / "fixed_net.py").write_text(text)
        write(folder, **settings, train={"architecture": "fixed_net.py:Net"})
        completed = run("check").ends(2 if excess and bands else 0)
        assert (f"fails with a chip of {bands} bands" in completed.stderr) == bool(excess and bands)
        assert (warning in completed.stdout) == (not bands)


def test_a_model_of_change_has_a_class_for_each_pair(folder: Path, run: Run) -> None:
    (folder / "fixed_net.py").write_text(FIXED.replace("BANDS", "2").replace("CLASSES", "4"))
    write(folder, label={"before": "labels.tif"}, train={"architecture": "fixed_net.py:Net"})
    run("check").ends(0)


IN_BUCKET = RIGHT["search"] | {"catalog": "s3://bucket/catalog"}
ON_WEB = RIGHT["label"] | {"source": "https://example.org/labels.tif"}
NO_DISK = "results are written to a file system only"
NO_FILE = "only files and folders of a file system can be read here"


@pytest.mark.parametrize("command", ["check", "plan"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"results": "s3://bucket/results"}, f"results is 's3://bucket/results': {NO_DISK}; write a folder, and copy"),
        ({"state": "s3://bucket/state"}, f"state is 's3://bucket/state': {NO_DISK}"),
        ({"results": "my results"}, "results is 'my results': write the path of a folder with letters, digits and"),
        (
            {"search": IN_BUCKET},
            f"search.catalog is s3:/bucket/catalog: {NO_FILE}; set search.url for a catalog on the",
        ),
        ({"label": ON_WEB}, f"label.source is https:/example.org/labels.tif: {NO_FILE}; download it first"),
    ],
)
def test_object_stores_urls_and_blanks_as_folders_are_refused_with_what_to_write_instead(
    folder: Path, run: Run, command: str, changes: dict[str, Any], message: str
) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(RIGHT | changes))
    completed = run(command, "config.yaml").ends(2, message)
    assert completed.stderr.count("\n") == 1
    assert not (folder / "results").exists()


@pytest.mark.exhaustive
def test_a_run_into_an_object_store_is_refused_in_the_same_sentence(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(RIGHT | {"results": "s3://bucket/results"}))
    command = [sys.executable, "-m", "eopipe", "run", "--dry-run", "--cores", "1", "--configfile", "config.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode
    assert "results are written to a file system only" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_no_config_in_the_folder_is_one_sentence(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("check").ends(2, "there is no config.yaml in this folder: change to the folder of your project", "eopipe init")


def test_the_grid_that_a_run_froze_is_checked_too(folder: Path, run: Run) -> None:
    write(folder)
    arguments = ("--catalog", "catalog", "--assets", "blue", "red", "scl", *BANDS)
    assert run("search", *search_outputs(Path("results")), *arguments).code == 0
    # Scenes are not searched for again.
    (folder / "catalog/catalog.json").write_text(json.dumps({"links": "broken"}))
    assert run("check").code == 0
    write(folder, split={"block": 512})
    assert "split has no chip" in run("check").stderr
