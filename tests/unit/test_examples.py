"""The examples of providers name assets that these have, and their values and masks are read as documented."""

from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, serve_api

from eopipe.config import load
from eopipe.contract import stage
from eopipe.scenes.item import SceneBand
from eopipe.scenes.masks import mask_of
from eopipe.scenes.products import BandScaling, product_scaling
from eopipe.text_files import read_json
from eopipe.tiles.cells import read_frame

LOCAL = {"clouds-33t", "tree-cover-values", "tree-cover-labels", "forest-chips"}
EXAMPLES = Path(__file__).parents[2] / "config/examples"
S2 = {"s2:processing_baseline": "05.09", "eo:cloud_cover": 3.0}
REFLECTANCE, HLS = BandScaling(1e-4, -0.1, 0.0), BandScaling(1e-4, 0.0, -9999.0)
# Of each example: id and properties of a scene of the provider, assets of its collection, scaling of a band.
# Sources: earth-search.aws.element84.com/v1; the item_assets of planetarycomputer.microsoft.com/api/stac/v1 (their
# templates: github.com/microsoft/planetary-computer-tasks); stac.dataspace.copernicus.eu/v1.
PROVIDERS: dict[str, tuple[str, dict[str, Any], str, BandScaling]] = {
    "sentinel-2-l2a": (
        "S2A_33TVM_20230701_0_L2A",
        S2,
        "aot blue coastal green nir nir08 nir09 red rededge1 rededge2 rededge3 scl swir16 swir22 visual wvp",
        REFLECTANCE,
    ),
    "cdse-sentinel-2": (
        "S2A_MSIL2A_20230701T100031_N0509_R122_T33TVM_20230701T160000",
        {"processing:version": "05.09", "platform": "sentinel-2a", "eo:cloud_cover": 3.0},
        "B01_60m B02_10m B03_10m B04_10m B05_20m B06_20m B07_20m B08_10m B8A_20m B11_20m B12_20m SCL_20m TCI_10m",
        REFLECTANCE,
    ),
    "landsat-c2-l2": (
        "LC09_L2SP_191028_20230701_02_T1",
        {"landsat:correction": "L2SP", "eo:cloud_cover": 3.0},
        "blue coastal green lwir11 nir08 qa_pixel qa_radsat red swir16 swir22",
        BandScaling(2.75e-5, -0.2, 0.0),
    ),
    "hls-l30": (
        "HLS.L30.T33TVM.2023182T095031.v2.0",
        {"eo:cloud_cover": 3},
        "B01 B02 B03 B04 B05 B06 B07 B09 B10 B11 Fmask SAA SZA VAA VZA",
        HLS,
    ),
    "hls-s30": (
        "HLS.S30.T33TVM.2023182T095031.v2.0",
        {"eo:cloud_cover": 3},
        "B01 B02 B03 B04 B05 B06 B07 B08 B8A B09 B10 B11 B12 Fmask SAA SZA VAA VZA",
        HLS,
    ),
    "sentinel-1-rtc": (
        "S1A_IW_GRDH_1SDV_20230601T051031_20230601T051056_048799_05DE6A_rtc",
        {"sar:polarizations": ["VV", "VH"]},
        "vv vh tilejson rendered_preview",
        BandScaling(nodata=-32768.0),
    ),
    "cop-dem": (
        "Copernicus_DSM_COG_10_N46_00_E014_00_DEM",
        {"gsd": 30},
        "data tilejson rendered_preview",
        BandScaling(),
    ),
}
BOX = [[[13, 45], [16, 45], [16, 47], [13, 47], [13, 45]]]


def a_scene(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """A scene of a provider over the area of its example, in its season."""
    identity, properties, assets, _ = PROVIDERS[name]
    projection = {"proj:code": "EPSG:32633", "proj:shape": [1000, 1000], "proj:transform": [10, 0, 4e5, 0, -10, 52e5]}
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "id": identity,
        "collection": config["search"]["collections"][0],
        "geometry": {"type": "Polygon", "coordinates": BOX},
        "properties": {"datetime": "2023-06-15T10:00:00Z"} | properties,
        "links": [],
        "assets": {asset: {"href": f"https://assets.example/{asset}.tif"} | projection for asset in assets.split()},
    }


def test_every_provider_has_an_example() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == PROVIDERS.keys() | LOCAL


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_search_of_an_example_finds_scenes_of_its_provider(name: str, tmp_path: Path, web: Loopback) -> None:
    config = load(EXAMPLES / f"{name}.yaml")
    url = serve_api(web, [a_scene(name, config)], conformance=("filter",))
    outputs = {
        port: tmp_path / file for port, file in (("items", "items"), ("grid", "g.json"), ("selection", "s.json"))
    }
    stage("search").run(**outputs, **config["search"] | {"url": url})
    query = web.requests("/api/search")[0].value
    assert query["collections"] == list(config["search"]["collections"])
    assert ("filter" in query) == (config["search"]["max_cloud"] < 100)
    assert [row["id"] for row in read_json(outputs["selection"])["scenes"]] == [PROVIDERS[name][0]]
    grid = read_frame(outputs["grid"]).only
    assert str(grid.crs) == "EPSG:32633"
    assert grid.resolution.x == (config["search"]["resolution"] or 10)
    assert min(grid.shape) >= 2 * config["split"]["block"], "several blocks to split"


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_values_and_the_mask_of_an_example_are_known(name: str) -> None:
    config = load(EXAMPLES / f"{name}.yaml")
    scene, options = a_scene(name, config), config["preprocess"]
    for band in options["bands"]:
        assert product_scaling(scene, band) == PROVIDERS[name][3], band
    assert config["search"]["url"].startswith("https://")
    if options["mask"] != "none":
        rule = mask_of(SceneBand(options["mask"], Path(), 1.0, 0.0, None), options["mask_as"], options["masked"])
        assert rule.masked
