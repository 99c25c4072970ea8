"""Search through a real STAC API (stac-fastapi on pgstac) whose assets a real web server has."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import requests
from catalogs import CATALOGS
from nginx import Served
from scenery import Run
from server_requests import BANDS, SAMPLE, dropped, filled, names, search
from shapely.geometry import box, mapping
from stac_api import Api

from eopipe.publish import digest, verify
from eopipe.scenes.item import read_item
from eopipe.text_files import read_json
from eopipe.tiles.globe import split


def test_an_api_gives_what_the_folder_gives(api: Api, assets: Served, tmp_path: Path, run: Run) -> None:
    completed = search(run, tmp_path / "web", api, "--collections", SAMPLE)
    assert completed.code == 0, completed.stderr
    arguments = (
        "--items",
        tmp_path / "disk/items",
        "--grid",
        tmp_path / "disk/grid.json",
        "--selection",
        tmp_path / "disk/selection.json",
        *BANDS,
    )
    assert run("search", "--catalog", CATALOGS["sample"], *arguments).code == 0
    assert names(tmp_path / "web") == names(tmp_path / "disk")
    assert len(names(tmp_path / "web")) == 24
    assert digest(tmp_path / "web/grid.json") == digest(tmp_path / "disk/grid.json")
    verify(tmp_path / "web/items")
    for name in names(tmp_path / "web"):
        from_web, from_disk = (read_item(tmp_path / source / "items" / f"{name}.geojson") for source in ("web", "disk"))
        assert from_web["properties"] == from_disk["properties"]
        for band, asset in from_web["assets"].items():
            assert asset["href"] == f"{assets.url}/sample/{from_disk['assets'][band]['href']}"


def test_fetch_brings_the_scene_over_the_web(api: Api, tmp_path: Path, run: Run) -> None:
    assert search(run, tmp_path, api, "--ids", "S2_ROMANIA_20170412").code == 0
    item = tmp_path / "items/S2_ROMANIA_20170412.geojson"
    completed = run(
        "fetch",
        "--item",
        item,
        "--scene",
        tmp_path / "scene",
        "--parts",
        tmp_path / "parts",
        "--private-hosts",
        "127.0.0.1",
    )
    assert completed.code == 0, completed.stderr
    file = next((tmp_path / "scene").glob("*red*"))
    assert file.read_bytes() == (CATALOGS["sample"] / SAMPLE / "S2_ROMANIA_20170412/B04.tif").read_bytes()


def test_the_web_server_serves_ranges(api: Api, assets: Served) -> None:
    url = f"{assets.url}/sample/{SAMPLE}/S2_ROMANIA_20170412/B04.tif"
    response = requests.get(url, headers={"Range": "bytes=0-3"}, timeout=10)
    assert (response.status_code, response.content) == (206, b"II*\x00")


def test_licence_and_providers_of_the_collection_reach_each_scene(api: Api, tmp_path: Path, run: Run) -> None:
    assert search(run, tmp_path, api, "--ids", "S2_ROMANIA_20170412").code == 0
    item = read_item(tmp_path / "items/S2_ROMANIA_20170412.geojson")
    assert item["properties"]["license"] == "other"
    assert item["properties"]["providers"][0]["name"] == "European Union/ESA/Copernicus"
    assert any(link["rel"] == "license" for link in item["links"])


@pytest.mark.parametrize("max_cloud", [100, 40, 10, 0])
def test_the_server_leaves_out_clouds_but_not_scenes_that_tell_none(
    api: Api, assets: Served, scene: dict[str, Any], tmp_path: Path, run: Run, max_cloud: float
) -> None:
    changes = {f"c{cloud}": {"eo:cloud_cover": cloud} for cloud in (0, 10, 10.5, 40, 41, 100)} | {
        "radar": {"eo:cloud_cover": None}
    }
    name = filled(api, scene, changes, f"clouds-{max_cloud}")
    completed = search(run, tmp_path, api, "--collections", name, "--max-cloud", max_cloud)
    assert completed.code == 0, completed.stderr
    assert names(tmp_path) == sorted([f"c{c}" for c in (0, 10, 10.5, 40, 41, 100) if c <= max_cloud] + ["radar"])


def test_the_list_is_read_to_its_last_page(api: Api, scene: dict[str, Any], tmp_path: Path, run: Run) -> None:
    name = filled(api, scene, {f"s{n:03}": {} for n in range(230)}, "many")
    assert search(run, tmp_path, api, "--collections", name).code == 0
    assert names(tmp_path) == [f"s{n:03}" for n in range(230)]


def tile(west: float, south: float, notation: str) -> dict[str, Any]:
    """A footprint of one degree; catalogs have several notations for one across 180 degrees."""
    whole = box(west, south, west + 1, south + 1)
    crosses = west < 180 < west + 1
    if notation == "cut" or not crosses:
        return dict(mapping(split(whole)))
    to_x = {"beyond": lambda x: x, "below": lambda x: x - 360, "jumping": lambda x: (x + 180) % 360 - 180}
    return {"type": "Polygon", "coordinates": [[[to_x[notation](x), y] for x, y in whole.exterior.coords]]}


@pytest.mark.parametrize("notation", ["cut", "jumping", "beyond", "below"])
def test_the_tiles_across_180_degrees_are_those_of_anywhere_else(
    api: Api, scene: dict[str, Any], tmp_path: Path, run: Run, notation: str
) -> None:
    for shift in (0, 10):
        # No edge is on 180 degrees, so the tile in the middle crosses it.
        offsets = itertools.product(range(-3, 3), range(-1, 3))
        changes = {
            f"t{x}_{y}".replace("-", "m"): {"geometry": tile(179.5 + x - shift, y, notation), "proj:code": None}
            for x, y in offsets
        }
        name = filled(api, scene, changes, f"tiles-{notation}-{shift}")
        # Areas on both sides of the line, and on one of them.
        for number, sides in enumerate([(179.6, 180.4), (180.1, 180.4), (179.6, 179.9)]):
            west, east = ((side - shift + 180) % 360 - 180 for side in sides)
            folder = tmp_path / f"{shift}-{number}"
            arguments = ("--bbox", west, 0.2, east, 0.8, "--crs", "EPSG:32701", "--resolution", 1000)
            completed = search(run, folder, api, *arguments, "--collections", name)
            assert completed.code == 0, (sides, completed.stderr)
            assert names(folder) == ["t0_0"], sides


def test_widening_the_dates_leaves_the_old_scenes_as_they_are(api: Api, tmp_path: Path, run: Run) -> None:
    for folder, dates in (("narrow", "2018"), ("wide", "2017/2019")):
        assert search(run, tmp_path / folder, api, "--collections", SAMPLE, "--datetime", dates).code == 0
    old, new = names(tmp_path / "narrow"), names(tmp_path / "wide")
    assert len(old) == 10
    assert set(old) < set(new)
    for name in old:
        file = f"items/{name}.geojson"
        assert (tmp_path / "narrow" / file).read_bytes() == (tmp_path / "wide" / file).read_bytes()


def test_the_newest_baseline_of_a_scene_is_chosen(api: Api, scene: dict[str, Any], tmp_path: Path, run: Run) -> None:
    changes = {
        f"S2A_MSIL2A_20200501T095031_N{baseline}_R079_T33TWL_{day}T120000": {}
        for baseline, day in (("0214", "20200501"), ("0500", "20230501"), ("0301", "20210501"))
    }
    name = filled(api, scene, changes, "baselines")
    assert search(run, tmp_path, api, "--collections", name).code == 0
    assert names(tmp_path) == ["S2A_MSIL2A_20200501T095031_N0500_R079_T33TWL_20230501T120000"]
    assert [row["why"] for row in dropped(tmp_path)] == [
        "baseline 05.00 instead of 02.14",
        "baseline 05.00 instead of 03.01",
    ]


def test_a_collection_that_the_server_does_not_have_is_told(api: Api, tmp_path: Path, run: Run) -> None:
    completed = search(run, tmp_path, api, "--collections", "sentinel-2-l2z", "--datetime", "2020")
    assert completed.code == 3
    assert "sentinel-2-l2z" in completed.stderr
    assert "2020" in completed.stderr


@pytest.mark.skipif(not CATALOGS["shared"].is_dir(), reason="the shared catalog is not beside this checkout")
def test_the_clearest_days_of_two_real_tiles_stay_whole(api: Api, tmp_path: Path, run: Run) -> None:
    arguments = ("--collections", "sentinel-2-l2a-33t", "--best", 2, "--group", "solar-day")
    completed = search(run, tmp_path, api, *arguments, "--bbox", 15, 45.2, 16.2, 46.8)
    assert completed.code == 0, completed.stderr
    days = {row["solar_day"] for row in read_json(tmp_path / "selection.json")["scenes"]}
    assert len(days) == 2
    assert len(names(tmp_path)) == 4, "each day has both tiles"
    assert [row["place"] for row in sorted(dropped(tmp_path), key=lambda row: row["place"])] == [3, 3, 4, 4, 5, 5]
    item = read_item(tmp_path / f"items/{names(tmp_path)[0]}.geojson")
    assert item["properties"]["license"] == "other"
