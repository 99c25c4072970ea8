"""STAC out: the model as an item with the MLM extension, maps and tiles as a self-contained catalog."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pystac
import pytest
import rasterio
from builders import describe_model, save_model
from gdal import available_libraries
from hypothesis import given
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from scenery import Catalog, Run, search_outputs
from shapely import LinearRing
from stac_schemas import registry, schema_errors

from eopipe.chips.chips import Normaliser
from eopipe.models import Architecture
from eopipe.models.model_folder import read_model_card
from eopipe.publish import sha256, verify
from eopipe.stac.mlm import to_card, to_item
from eopipe.stac.write import ItemExtent, located
from eopipe.text_files import read_json, write_json
from eopipe.tiles.globe import outline_of

VALIDATORS = Path(__file__).parents[2] / ".venv/validators/bin/python"
BANDS, CLASSES = ("red", "blue"), ("bare ground", "forêt")


def write_model(folder: Path, task: str = "segmentation") -> Path:
    classes = ("height",) if task == "regression" else CLASSES
    fields: dict[str, Any] = {"architecture": Architecture("unet", 2, len(classes), 4, 1, BANDS), "chip": 16}
    fields |= {"regression": {"target": (3.0, 2.0)}, "multilabel": {"min_share": 0.2}}.get(task, {})
    trained = describe_model(task, classes, BANDS, normaliser=Normaliser((0.1, 0.2), (0.5, 0.4)), **fields)
    return save_model(folder, trained, seed=0, settings={"epochs": 2, "loss": None})


@pytest.fixture
def run_dir(tmp_path: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two scenes became tiles and a map; one of the scenes has an address of its own."""
    template = tmp_path_factory.getbasetemp() / "run_dir"
    if not template.exists():
        make(template, Catalog(template / "catalog"), run)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def stac(run_dir: Path, run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog of this folder, which is written once."""
    template = tmp_path_factory.getbasetemp() / "stac"
    if not template.exists():
        write_catalog(run, run_dir).ends(0)
        shutil.copytree(run_dir / "stac", template)
    shutil.copytree(template, run_dir / "stac", dirs_exist_ok=True)
    return run_dir / "stac"


def make(folder: Path, catalog: Catalog, run: Run, task: str = "segmentation") -> Path:
    catalog.add("a", properties={"datetime": "2023-08-01T10:00:00Z"})
    catalog.add("b", properties={"datetime": "2023-08-11T10:00:00+02:00"})
    catalog.items[1]["links"] = [{"rel": "self", "href": "https://example.org/b.json"}]
    arguments: list[Any] = ["--catalog", catalog.write(), "--assets", "red", "blue", "scl"]
    assert run("search", *arguments, *search_outputs(folder)).code == 0
    for name in ("a", "b"):
        item, scene = folder / f"items/{name}.geojson", folder / f"scenes/{name}"
        assert run("fetch", "--item", item, "--catalog", catalog.root, "--scene", scene).code == 0
        arguments = ["--grid", folder / "grid.json", "--tiles", folder / f"{name}.zarr", "--bands", "red", "blue"]
        assert run("preprocess", "--scene", scene, *arguments, "--mask", "scl", "--chunk", 16, "--shard", 64).code == 0
    write_model(folder / "model", task)
    predict(run, folder, folder / "model").ends(0)
    return folder


def tiles(folder: Path) -> list[Path]:
    return [folder / "a.zarr", folder / "b.zarr"]


def predict(run: Run, folder: Path, model: Path, name: str = "") -> Any:
    maps = ["--classes", folder / f"classes{name}.tif", "--probabilities", folder / f"probabilities{name}.tif"]
    return run("predict", "--model", model, "--tiles", *tiles(folder), *maps)


def write_catalog(run: Run, folder: Path, name: str = "stac", *more: Any, model: Path | None = None) -> Any:
    arguments: list[Any] = ["--classes", folder / "classes.tif", "--probabilities", folder / "probabilities.tif"]
    arguments += ["--tiles", *tiles(folder), "--scenes", *sorted((folder / "items").glob("*.geojson"))]
    return run("catalog", "--model", model or folder / "model", *arguments, "--catalog", folder / name, *more)


def documents(folder: Path) -> dict[str, dict[str, Any]]:
    """Every STAC document of a catalog but the copies of scenes, by its path."""
    documents_by_path = {str(p.relative_to(folder)): read_json(p) for p in sorted(folder.rglob("*.json"))}
    return {k: v for k, v in documents_by_path.items() if "stac_version" in v and ".zarr" not in k}


def test_every_document_is_valid_stac_with_the_versions_of_its_extensions(stac: Path) -> None:
    documents_by_path = documents(stac)
    maps, tiles = {"maps/collection.json", "maps/map/map.json"}, {f"tiles/{name}.json" for name in ("a/a", "b/b")}
    assert set(documents_by_path) == {"catalog.json", "model/model.json", "tiles/collection.json"} | maps | tiles
    for name, document in documents_by_path.items():
        assert schema_errors(document) == [], name
    verify(stac)


def in_validators(code: str, *arguments: object) -> str:
    """What a program prints that runs where `stac-model` and `stac-validator` are installed."""
    if not VALIDATORS.exists():
        pytest.skip("stac-model is not installed; run `make .venv/validators`")
    line = [VALIDATORS, "-c", code, *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("task", ["segmentation", "classification", "multilabel", "regression"])
def test_the_reference_implementation_of_mlm_reads_the_item_of_a_model_and_loses_nothing(
    tmp_path: Path, task: str
) -> None:
    code = """
import json, sys
from stac_model.schema import MLModelProperties
item = json.load(open(sys.argv[1]))
print(MLModelProperties.model_validate(item["properties"]).model_dump_json(by_alias=True))
"""
    path = write_model(tmp_path / "model", task) / "model.json"
    read = json.loads(in_validators(code, path))

    def covers(value: Any, expected: Any) -> bool:
        """Whether all of a value is in another, which may have defaults beside it."""
        if isinstance(expected, dict):
            return all(key in value and covers(value[key], entry) for key, entry in expected.items())
        if isinstance(expected, list):
            return len(value) == len(expected) and all(map(covers, value, expected))
        return bool(value == expected)

    properties = read_json(path)["properties"]
    for key in (key for key in properties if key.startswith("mlm:")):
        assert covers(read[key], properties[key]), key


def test_stac_validator_accepts_every_document_with_its_extensions(run_dir: Path, run: Run, tmp_path: Path) -> None:
    assert write_catalog(run, run_dir, "stac", "--license", "CC-BY-4.0").code == 0
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    addresses = {}
    # By the addresses that the documents and the schemas themselves use.
    for number, (address, resource) in enumerate(registry().items()):
        (schemas / f"{number}.json").write_text(json.dumps(resource.contents))
        addresses[address] = str(schemas / f"{number}.json")
    write_json(tmp_path / "map.json", addresses)
    code = """
import json, sys
from stac_validator.stac_validator import StacValidate
addresses, *documents = sys.argv[1:]
for path in documents:
    check = StacValidate(path, extensions=True, schema_map=json.load(open(addresses)))
    check.run()
    core = StacValidate(path, core=True, schema_map=json.load(open(addresses)))
    core.run()
    print(json.dumps([path, *check.message, *core.message]))
"""
    paths = [run_dir / "stac" / name for name in documents(run_dir / "stac")]
    rows = [json.loads(row) for row in in_validators(code, tmp_path / "map.json", *paths).splitlines()]
    assert len(rows) == len(paths)
    assert [row for row in rows if not all(message["valid_stac"] for message in row[1:])] == []


def test_the_model_in_a_catalog_has_links_licence_and_its_onnx_file(run_dir: Path, run: Run) -> None:
    (run_dir / "model.onnx").write_bytes(b"onnx")
    before = {path: path.read_bytes() for path in (run_dir / "model").iterdir()}
    options = ("--onnx", run_dir / "model.onnx", "--license", "CC-BY-4.0")
    assert write_catalog(run, run_dir, "stac", *options).code == 0
    item = read_json(run_dir / "stac/model/model.json")
    links = {entry["rel"]: entry["href"] for entry in item["links"]}
    assert links == dict.fromkeys(("root", "parent"), "../catalog.json")
    assert item["properties"]["license"] == "CC-BY-4.0"
    described = item["assets"]["onnx"]
    assert (described["href"], described["type"]) == ("./model.onnx", "application/onnx")
    assert described["file:checksum"] == f"1220{sha256(run_dir / 'model.onnx')}"
    assert schema_errors(item) == []
    verify(run_dir / "stac/model")
    assert {path: path.read_bytes() for path in before} == before, "the model of the run is another folder"
    assert predict(run, run_dir, run_dir / "stac", "again").code == 0
    assert sha256(run_dir / "classesagain.tif") == sha256(run_dir / "classes.tif")


def test_maps_say_how_they_are_displayed(stac: Path) -> None:
    item = read_json(stac / "maps/map/map.json")
    renders, classes = item["properties"]["renders"], item["assets"]["classes"]["classification:classes"]
    assert set(renders) == {"classes", "probabilities"} <= set(item["assets"])
    assert renders["classes"]["colormap"] == {
        str(row["value"]): f"#{row['color_hint']}" for row in classes if "color_hint" in row
    }
    assert (renders["classes"]["nodata"], renders["probabilities"]["rescale"]) == (255, [[0, 10_000]])


def test_every_polygon_is_counter_clockwise(stac: Path) -> None:
    rings = [
        LinearRing(polygon[0])
        for document in documents(stac).values()
        if (geometry := document.get("geometry"))
        for polygon in ([geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"])
    ]
    assert len(rings) >= 3
    assert all(ring.is_ccw for ring in rings)


def test_the_validation_finds_what_is_wrong(run_dir: Path) -> None:
    item = read_json(run_dir / "model/model.json")
    del item["properties"]["mlm:input"][0]["bands"]
    assert any("mlm" in error and "'bands' is a required property" in error for error in schema_errors(item))
    del item["properties"]["mlm:output"][0]["classification:classes"][0]["description"]
    assert any("classification:classes" in error for error in schema_errors(item))


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["regression", "classification", "multilabel"])
def test_models_and_maps_of_other_tasks_are_valid_stac(tmp_path: Path, catalog: Catalog, run: Run, task: str) -> None:
    folder = make(tmp_path, catalog, run, task)
    assert write_catalog(run, folder).code == 0
    assert [error for document in documents(folder / "stac").values() for error in schema_errors(document)] == []
    item = read_json(folder / "stac/maps/map/map.json")
    if task == "multilabel":
        labels = item["assets"]["labels"]
        assert [band["name"] for band in labels["raster:bands"]] == [*CLASSES]
        assert [row["value"] for row in labels["classification:classes"]] == [0, 1, 255]
    if task == "regression":
        (band,) = item["assets"]["values"]["raster:bands"]
        assert (band["unit"], band["nodata"], band["name"]) == ("m", "nan", "height")


@pytest.mark.parametrize(
    ("options", "licence", "links"),
    [
        ((), "other", []),
        (("--license", "CC-BY-4.0"), "CC-BY-4.0", []),
        (("--license", "https://example.org/terms"), "other", ["https://example.org/terms"]),
    ],
)
def test_collections_have_the_licence_that_is_stated_and_otherwise_say_that_none_is(
    run_dir: Path, run: Run, options: tuple[str, ...], licence: str, links: list[str]
) -> None:
    assert write_catalog(run, run_dir, "stac", *options).code == 0
    for name in ("maps", "tiles"):
        document = read_json(run_dir / f"stac/{name}/collection.json")
        assert document["license"] == licence
        assert [link["href"] for link in document["links"] if link["rel"] == "license"] == links
        assert document["description"].endswith("No licence is stated.") == (not options)
        assert schema_errors(document) == []


def test_gdal_reads_the_names_of_the_classes_and_stac_their_colours(stac: Path) -> None:
    folder = stac / "maps/map"
    for gdal in available_libraries():
        assert gdal.read(str(folder / "classes.tif"))["categories"] == ["bare ground", "forêt"], gdal.version
    with rasterio.open(folder / "classes.tif") as source:
        colors = {n: "".join(f"{part:02x}" for part in source.colormap(1)[n][:3]) for n in (0, 1)}
    item = read_json(folder / "map.json")
    hints = {row["value"]: row.get("color_hint") for row in item["assets"]["classes"]["classification:classes"]}
    assert hints == colors | {255: None}
    assert schema_errors(item) == []


def test_pystac_reads_the_catalog_and_all_links_lead_to_what_is_there(run_dir: Path, run: Run) -> None:
    assert write_catalog(run, run_dir, "stac", "--title", "Forests").code == 0
    (run_dir / "stac").rename(run_dir / "moved")
    root = pystac.Catalog.from_file(str(run_dir / "moved/catalog.json"))
    assert root.title == "Forests"
    items = {item.id: item for item in root.get_items(recursive=True)}
    assert {"a", "b", "map"} < set(items)
    for path, document in documents(run_dir / "moved").items():
        hrefs = [link["href"] for link in document["links"]]
        hrefs += [asset["href"] for asset in document.get("assets", {}).values()]
        local = [href for href in hrefs if not href.startswith("https://")]
        assert all((run_dir / "moved" / path).parent.joinpath(href).exists() for href in local), path


def test_a_map_tells_its_place_time_classes_origin_and_checksum(run_dir: Path, stac: Path) -> None:
    item = read_json(stac / "maps/map/map.json")
    properties, asset = item["properties"], item["assets"]["classes"]
    with rasterio.open(run_dir / "classes.tif") as source:
        assert properties["proj:code"] == source.crs.to_string()
        assert properties["proj:transform"] == list(source.transform)[:6]
        assert properties["proj:shape"] == list(source.shape)
    assert properties["start_datetime"] == "2023-08-01T10:00:00Z"
    assert properties["end_datetime"] == "2023-08-11T08:00:00Z"
    titles = {entry["value"]: entry["title"] for entry in asset["classification:classes"]}
    assert titles == {0: "bare ground", 1: "forêt", 255: "no scene is valid"}
    assert asset["file:checksum"] == f"1220{sha256(run_dir / 'stac/maps/map/classes.tif')}"
    assert item["assets"]["probabilities"]["raster:bands"][1]["scale"] == 1e-4
    from_ = [link["href"] for link in item["links"] if link["rel"] == "derived_from"]
    assert from_ == ["../../model/model.json", "../../tiles/a/a.json", "../../tiles/b/b.json"]
    origins = {
        name: [link["href"] for link in read_json(stac / f"tiles/{name}/{name}.json")["links"]][3:] for name in "ab"
    }
    assert origins == {"a": ["../../scenes/a.geojson"], "b": ["https://example.org/b.json"]}


def test_the_same_run_gives_the_same_catalog_with_no_path_of_this_machine(run_dir: Path, run: Run) -> None:
    assert write_catalog(run, run_dir).code == write_catalog(run, run_dir, "other").code == 0
    assert (run_dir / "stac/manifest.json").read_bytes() == (run_dir / "other/manifest.json").read_bytes()
    assert all(str(run_dir) not in path.read_text() for path in (run_dir / "stac").rglob("*json"))


def test_a_later_search_finds_the_maps_and_a_fetch_brings_them_verified(run_dir: Path, stac: Path, run: Run) -> None:
    arguments = [*search_outputs(run_dir / "later"), "--collections", "maps"]
    run("search", "--catalog", stac, *arguments, "--assets", "classes").ends(0)
    item = run_dir / "later/items/map.geojson"
    assert run("fetch", "--item", item, "--catalog", stac, "--scene", run_dir / "map").code == 0
    (fetched,) = (run_dir / "map").glob("classes*")
    assert sha256(fetched) == sha256(run_dir / "classes.tif")
    assert read_json(run_dir / "later/grid.json")["shape"] == read_json(run_dir / "grid.json")["shape"]


@pytest.mark.parametrize("model", ["model/model.json", "stac", "stac/model"])
def test_predict_needs_only_the_item_or_a_catalog_that_holds_it(
    run_dir: Path, stac: Path, run: Run, model: str
) -> None:
    predict(run, run_dir, run_dir / model, "again").ends(0)
    assert sha256(run_dir / "classesagain.tif") == sha256(run_dir / "classes.tif")


def test_an_item_works_under_another_name_beside_weights_under_another_name(run_dir: Path, run: Run) -> None:
    text = (run_dir / "model/model.json").read_text().replace("./model.safetensors", "./weights/mine.safetensors")
    (run_dir / "elsewhere/weights").mkdir(parents=True)
    (run_dir / "elsewhere/item.json").write_text(text)
    (run_dir / "elsewhere/weights/mine.safetensors").write_bytes((run_dir / "model/model.safetensors").read_bytes())
    assert predict(run, run_dir, run_dir / "elsewhere/item.json", "again").code == 0


WEIGHTS = ("assets", "model")


@pytest.mark.parametrize(
    ("keys", "value", "code", "message"),
    [
        ((*WEIGHTS, "href"), "./gone.safetensors", 3, "links the weights ./gone.safetensors, which do not exist"),
        ((*WEIGHTS, "href"), "../../model.safetensors", 8, "points to '../../model.safetensors'"),
        ((*WEIGHTS, "file:checksum"), f"1220{'0' * 64}", 4, "does not have the checksum that model.json states"),
        ((*WEIGHTS, "roles"), ["data"], 3, "has 0 assets with the role mlm:model"),
        (("properties", "mlm:input"), [{}], 3, "lacks 'bands', which eopipe needs of a model"),
    ],
    ids=["gone", "outside", "changed", "no role", "no bands"],
)
def test_a_bad_item_of_a_model_is_told_in_one_sentence(
    run_dir: Path, run: Run, keys: tuple[str, ...], value: Any, code: int, message: str
) -> None:
    path = run_dir / "model/model.json"
    item = owner = read_json(path)
    for key in keys[:-1]:
        owner = owner[key]
    owner[keys[-1]] = value
    write_json(path, item)
    assert predict(run, run_dir, path, "again").ends(code, message).stderr.count("\n") == 1
    assert not (run_dir / "classesagain.tif").exists()


def test_a_folder_without_a_model_or_with_two_is_refused(run_dir: Path, stac: Path, run: Run) -> None:
    predict(run, run_dir, run_dir / "items", "again").ends(3, "no model.json and no STAC catalog of a model")
    # A catalog written by other software has no manifest that would reveal the change.
    (stac / "manifest.json").unlink()
    root = read_json(stac / "catalog.json")
    root["links"].append({"rel": "item", "href": "./second/model.json"})
    write_json(stac / "catalog.json", root)
    write_model(stac / "second")
    assert "contains 2 models" in predict(run, run_dir, stac, "again").stderr


def test_maps_of_other_tiles_and_tiles_of_other_scenes_are_refused(run_dir: Path, run: Run) -> None:
    arguments = ["--model", run_dir / "model", "--classes", run_dir / "classes.tif", "--catalog", run_dir / "stac"]
    arguments += ["--probabilities", run_dir / "probabilities.tif", "--scenes", run_dir / "items/a.geojson"]
    run("catalog", *arguments, "--tiles", run_dir / "a.zarr").ends(3, "is made from b, whose tiles are not given")
    run("catalog", *arguments, "--tiles", *tiles(run_dir)).ends(3, "is made from b", "not among the scenes given")
    assert not (run_dir / "stac").exists()


def test_a_broken_link_of_a_catalog_is_told_with_the_document_that_has_it(run_dir: Path, stac: Path, run: Run) -> None:
    (stac / "maps/map/map.json").unlink()
    (stac / "manifest.json").unlink()
    arguments = ["--catalog", stac, *search_outputs(run_dir / "later"), "--assets", "classes"]
    completed = run("search", *arguments)
    assert (completed.code, completed.stderr.count("\n")) == (3, 1)
    assert "maps/collection.json links to './map/map.json', which is not there" in completed.stderr


@given(
    st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=4, unique=True),
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    st.sampled_from(["segmentation", "classification", "multilabel", "regression"]),
)
def test_an_item_keeps_all_of_a_card(
    tmp_path_factory: pytest.TempPathFactory, classes: Any, mean: Any, task: str
) -> None:
    folder = tmp_path_factory.mktemp("card")
    (folder / "w.safetensors").write_bytes(b"w")
    card = {
        "architecture": "my.module:Class",
        "width": 4,
        "depth": 1,
        "arguments": ["size=tiny"],
        "bands": ["red", "nir", "swir16"],
        "classes": classes[:1] if task == "regression" else classes,
        "mean": mean,
        "std": [1.0, 2.0, 3.0],
        "chip": 16,
        "parameters": 9,
        "settings": {"epochs": 3, "loss": None},
        "task": task,
    }
    if task == "regression":
        card |= {"target": [1.0, 2.0], "unit": "m"}
    if task == "multilabel":
        card["min_share"] = 0.05
    item = to_item(card, folder, "w.safetensors", ItemExtent())
    assert to_card(json.loads(json.dumps(item)), folder) == card
    assert schema_errors(item) == []


def test_a_grid_across_180_degrees_has_two_polygons_and_its_west_in_the_east() -> None:
    across = GeoBox.from_bbox((820_000, 0, 850_000, 10_000), crs="EPSG:32660", resolution=1000)
    geometry, (west, _, east, _) = located([outline_of(across)])
    assert geometry["type"] == "MultiPolygon"
    assert west > 179 > -179 > east


def test_the_model_tells_where_and_when_it_learned(run_dir: Path) -> None:
    assert read_model_card(run_dir / "model")["settings"] == {"epochs": 2, "loss": None}
    assert np.isclose(read_model_card(run_dir / "model")["mean"], (0.1, 0.2)).all()
