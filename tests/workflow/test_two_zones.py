"""A run over two UTM zones: maps without a gap or a doubled pixel at their border, alike in two engines."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import two_zones
import yaml
from projects import Project, by_cwltool
from test_planned_run import check_plan

from eopipe.arrays import AnyArray, BoolArray
from eopipe.chips.chips import fill_nearest
from eopipe.models.model_folder import read_trained_model
from eopipe.tiles.cells import read_frame
from eopipe.tiles.store import Tiles

# One run for all of them.
IN_ONE_SLICE = pytest.mark.exhaustive(by="two zones")


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("zones"))
    two_zones.write_project(project.folder)
    # Every file of both cells is predicted.
    check_plan(project)
    return project


def centres(path: Path) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The numbers of a map, and longitude and latitude of the centres of its pixels, by GDAL."""
    import rasterio
    from rasterio.warp import transform

    with rasterio.open(path) as file:
        rows, columns = np.indices(file.shape)
        x, y = rasterio.transform.xy(file.transform, rows.ravel(), columns.ravel())
        longitude, latitude = transform(file.crs, "EPSG:4326", list(x), list(y))
        return file.read(1), np.reshape(longitude, file.shape), np.reshape(latitude, file.shape)


def in_area(longitude: AnyArray, latitude: AnyArray) -> BoolArray:
    """The places of the area that a scene covers to a pixel."""
    west, south, east, north = two_zones.BBOX
    return (longitude > west) & (longitude < east) & (latitude > south) & (latitude < north)


def test_each_pixel_has_the_class_that_the_model_alone_gives_it_and_only_in_its_own_zone(mapped: Project) -> None:
    import torch

    trained = read_trained_model(mapped.results / "model")
    model = trained.build(mapped.results / "model").eval()
    stores = [Tiles(path) for path in sorted(mapped.results.glob("tiles/*.zarr"))]
    for cell in read_frame(mapped.results / "grid.json").cells:
        numbers, longitude, latitude = centres(mapped.results / f"maps/mosaic.{cell.id}/classes.tif")
        is_own = (longitude < two_zones.BORDER) == (cell.id == "utm32n")
        total, count = np.zeros((2, *cell.shape)), np.zeros(cell.shape, int)
        # The whole cell at once with 64 pixels around it; pooling begins at multiples of the frame's columns.
        left = 64 + cell.column % 8
        height, width = (-(-edge // 8) * 8 for edge in (64 + cell.shape[0] + 64, left + cell.shape[1] + 64))
        part = np.s_[..., 64 : 64 + cell.shape[0], left : left + cell.shape[1]]
        for store in stores:
            image = np.zeros((len(trained.bands), height, width), store.array("image").dtype)
            valid = np.zeros((height, width), bool)
            valid[part], image[part] = store.read("valid", *cell.window) > 0, store.read("image", *cell.window)
            normal = trained.normaliser(image, store.scaling, valid)
            fill_nearest(normal, valid, trained.architecture.receptive_field_radius)
            with torch.inference_mode():
                output = torch.softmax(model(torch.from_numpy(normal[None])), 1)[0].numpy()
            total += np.where(valid, output, 0)[part]
            count += valid[part]
        expected = np.where((count > 0) & is_own, total.argmax(0), 255)
        is_clear = np.abs(total[0] - total[1]) > 1e-4 * np.maximum(count, 1)
        assert (numbers == expected)[is_clear | ~is_own].all()
        assert is_clear[is_own & (count > 0)].mean() > 0.999
        assert (numbers != 255)[is_own & in_area(longitude, latitude)].all()
        assert (numbers == two_zones.classes_at(longitude, latitude))[numbers != 255].mean() > 0.95


def test_every_place_is_on_one_map(mapped: Project) -> None:
    import rasterio
    from rasterio.warp import transform

    west, south, east, north = two_zones.BBOX
    dice = np.random.default_rng(0)
    longitude, latitude = dice.uniform(west, east, 20_000), dice.uniform(south, north, 20_000)
    near = dice.uniform(two_zones.BORDER - 0.0005, two_zones.BORDER + 0.0005, 20_000)
    longitude, latitude = np.append(longitude, near), np.append(latitude, dice.uniform(south, north, 20_000))
    maps = np.zeros(len(longitude), int)
    for path in mapped.results.glob("maps/*/classes.tif"):
        with rasterio.open(path) as file:
            x, y = transform("EPSG:4326", file.crs, longitude, latitude)
            columns, rows = ~file.transform * (np.array(x), np.array(y))
            inside = (columns >= 0) & (columns < file.width) & (rows >= 0) & (rows < file.height)
            numbers = file.read(1)
            maps[inside] += numbers[rows[inside].astype(int), columns[inside].astype(int)] != 255
    # A pixel on the border is one or the other, by its centre: half of its diagonal.
    metres = np.abs(longitude - two_zones.BORDER) * 111_320 * np.cos(np.radians(latitude))
    assert (maps[metres > 7.1] == 1).all()
    assert set(maps.tolist()) <= {0, 1, 2}
    assert 0.99 < maps[len(near) :].mean() < 1.01


def test_no_chip_of_a_split_is_within_the_buffer_of_another_split_on_the_ground(mapped: Project) -> None:
    import pyogrio.raw
    from pyproj import Transformer
    from shapely import from_wkb, transform

    _, _, squares, (splits, *_) = pyogrio.raw.read(mapped.results / "split.gpkg", columns=["split"])
    change = Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True).transform
    places = transform(from_wkb(squares), lambda points: np.column_stack(change(*points.T)))
    distance = min(a.distance(b) for a in places[splits == "train"] for b in places[splits == "test"])
    # Metres of zone 32, whose scale is 1.0003 there.
    assert distance > 10 * two_zones.CONFIG["split"]["buffer"] * 0.99
    document = json.loads((mapped.results / "split.json").read_text())
    assert document["audit"]["gap_pixels"]["train-test"] >= two_zones.CONFIG["split"]["buffer"]
    assert [cell["id"] for cell in document["grid"]["cells"]] == ["utm32n", "utm33n"]


def same_files(outputs: Path, results: Path, pairs: dict[str, str]) -> None:
    """Compare files of cwltool with those of Snakemake."""
    for file, result in pairs.items():
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (outputs / file, results / result)]
        assert digests[0] == digests[1], file


@IN_ONE_SLICE
def test_cwltool_makes_the_same_maps_and_scores(mapped: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(mapped, tmp_path, with_onnx=False, with_report=False, with_crate=False)
    pairs = {name: name for name in ("metrics.json", "model/manifest.json", "split.json")}
    for cell in ("utm32n", "utm33n"):
        pairs |= {f"{kind}-{cell}.tif": f"maps/mosaic.{cell}/{kind}.tif" for kind in ("classes", "probabilities")}
    same_files(outputs, mapped.results, pairs)


@IN_ONE_SLICE
def test_maps_of_scenes_in_cells_are_planned_and_the_same_in_two_engines(tmp_path: Path) -> None:
    project = Project(tmp_path / "run")
    two_zones.write_project(project.folder, two_zones.SCENES | two_zones.EAST)
    split = {"method": "temporal", "dates": ["2023-08-03", "2023-08-08"], "chip": 16}
    split |= {"allow": ["place: scenes of one place are split"]}
    config = two_zones.CONFIG | {"split": split, "trials": {"space": {"width": [4, 8]}}}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config | {"map_parts": 2}))
    check_plan(project)
    names = {f"{scene}.{cell}" for scene in two_zones.SCENES for cell in ("utm32n", "utm33n")} | {"T33-east.utm33n"}
    assert {path.name for path in (project.results / "maps").iterdir()} == names
    outputs = by_cwltool(project, tmp_path, with_onnx=False, with_report=False, with_crate=False)
    pairs = {name: name for name in ("metrics.json", "model/manifest.json", "split.json", "trials.json")}
    for scene, cell in (name.split(".") for name in names):
        for kind in ("classes", "probabilities"):
            pairs[f"{kind}-{scene}.zarr-{cell}.tif"] = f"maps/{scene}.{cell}/{kind}.tif"
    same_files(outputs, project.results, pairs)
