"""Search freezes the same list wherever the scenes come from, and refuses what it must not follow."""

import copy
import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, serve_api
from scenery import LEFT, STEP, TOP, Catalog, Run, Search, numbered
from shapely.geometry import LinearRing

from eopipe.config import check
from eopipe.errors import UsageError
from eopipe.publish import digest, verify
from eopipe.scenes.item import as_item, scene_name
from eopipe.stac import api
from eopipe.stac.query import parse_interval
from eopipe.text_files import read_json

SAMPLE = Path(__file__).parents[2] / "sample"


@pytest.fixture
def search(run: Run, tmp_path: Path) -> Search:
    return Search(run, tmp_path / "out", ("--assets", "blue", "red", "scl"))


@pytest.fixture
def items(three: Catalog, web: Loopback) -> list[dict[str, Any]]:
    """The three scenes with the absolute addresses that an API gives."""
    every = json.loads(json.dumps(three.items))
    for number, item in enumerate(every):
        for name, asset in item["assets"].items():
            asset["href"] = f"{web.url}/catalog/s{number}/{name}.tif"
    return every


def test_scenes_of_a_folder_are_frozen_with_the_grid(search: Search, three: Catalog) -> None:
    search(three.write()).ends(0)
    assert search.names() == ["a", "b", "c"]
    item = search.item("b")
    assert sorted(item["assets"]) == ["blue", "red", "scl"]
    assert item["assets"]["red"]["href"] == "s0/red.tif"
    grid = search.grid
    assert grid == {"crs": "EPSG:32633", "shape": [64, 48], "transform": [STEP, 0.0, LEFT, 0.0, -STEP, TOP]}
    verify(search.items)


def test_the_bands_set_the_pixel_size_and_not_a_finer_mask_or_label(
    search: Search, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    bands = {"red": numbered((32, 24)), "truth": numbered((64, 48)), "scl": numbered((128, 96))}
    catalog.add(bands=bands, steps={"red": 2 * STEP, "truth": STEP, "scl": STEP / 2}, driver="GTiff")
    of_assets = search.to("out", "--assets", "scl", "truth", "red")
    caplog.set_level("INFO")
    of_assets(catalog.write(), "--grid-assets", "red").ends(0)
    assert search.grid["transform"] == [2 * STEP, 0.0, LEFT, 0.0, -2 * STEP, TOP]
    assert "event=grid crs=EPSG:32633 pixel='20 m (asset red)' shape='32 x 24'" in caplog.text
    assert of_assets(catalog.root).code == 0
    assert "pixel='5 m (asset scl)'" in caplog.text
    of_assets(catalog.root, "--grid-assets", "nir").ends(2, "search.grid_assets has nir")


def test_in_a_config_the_bands_of_preprocess_set_the_pixel_size() -> None:
    config: dict[str, Any] = {
        "search": {"catalog": "c", "assets": ["red", "scl", "truth"]},
        "preprocess": {"bands": ["red"]},
        "label": {"asset": "truth", "classes": ["a", "b"]},
    }
    assert check(config)["search"]["grid_assets"] == ("red",)
    config["search"]["grid_assets"] = ["truth"]
    assert check(config)["search"]["grid_assets"] == ("truth",)


def test_a_clockwise_footprint_is_frozen_counter_clockwise(search: Search, catalog: Catalog) -> None:
    item = catalog.add()
    ring = item["geometry"]["coordinates"][0]
    positions = [list(position) for position in ring]
    for clockwise in (ring, ring[::-1]):
        item["geometry"]["coordinates"] = [clockwise]
        assert search(catalog.write()).code == 0
        (frozen,) = search.item("scene")["geometry"]["coordinates"]
        assert LinearRing(frozen).is_ccw
        assert sorted(frozen) == sorted(positions)


def test_the_order_of_the_catalog_does_not_matter(search: Search, three: Catalog) -> None:
    search.to("one")(three.write())
    before = digest(search.to("one").items)
    head = read_json(three.root / "catalog.json")
    head["links"].reverse()
    (three.root / "catalog.json").write_text(json.dumps(head))
    assert search.to("two")(three.root).code == 0
    assert digest(search.to("two").items) == before


def test_a_catalog_over_http_gives_the_same_scenes(search: Search, three: Catalog, web: Loopback) -> None:
    three.write()
    search(f"{web.url}/catalog/catalog.json").ends(0)
    assert search.names() == ["a", "b", "c"]
    item = search.item("b")
    assert item["assets"]["red"]["href"] == f"{web.url}/catalog/s0/red.tif"
    search.to("folder")(three.root)
    assert search.to("folder").grid == search.grid


def test_nested_catalogs_are_walked_and_circles_end(search: Search, three: Catalog) -> None:
    three.write()
    inner = three.root / "inner"
    inner.mkdir()
    head = read_json(three.root / "catalog.json")
    head["links"] = [link | {"href": "." + link["href"]} for link in head["links"]]
    head["links"].append({"rel": "child", "href": "../catalog.json"})
    (inner / "catalog.json").write_text(json.dumps(head))
    outer = {"type": "Catalog", "id": "o", "links": [{"rel": "child", "href": "inner/catalog.json"}]}
    (three.root / "catalog.json").write_text(json.dumps(outer))
    assert search(three.root).code == 0
    assert search.names() == ["a", "b", "c"]


@pytest.mark.parametrize("follow", ["POST", "GET"])
def test_an_api_is_read_page_by_page(
    search: Search, items: list[dict[str, Any]], three: Catalog, web: Loopback, follow: str
) -> None:
    three.write()
    url = serve_api(web, [*items, items[0]], follow=follow)
    search(url, "--collections", "sentinel", "--datetime", "2023").ends(0)
    assert search.names() == ["a", "b", "c"], "one each, although a scene came on two pages"
    first, second = web.requests("/api/search")
    assert first.method == "POST"
    assert first.value["collections"] == ["sentinel"]
    assert first.value["datetime"] == "2023-01-01T00:00:00Z/2023-12-31T23:59:59Z"
    assert second.method == follow


def test_the_order_of_an_api_does_not_matter(search: Search, items: list[dict[str, Any]], web: Loopback) -> None:
    older = items[0] | {"properties": items[0]["properties"] | {"updated": "2020-01-01T00:00:00Z"}}
    newer = items[0] | {"properties": items[0]["properties"] | {"updated": "2024-01-01T00:00:00Z"}}
    digests = set()
    for number, order in enumerate([[older, *items[1:], newer], [newer, *reversed(items[1:]), older]]):
        ordered = search.to(str(number))
        assert ordered(serve_api(web, order)).code == 0
        digests.add(digest(ordered.items))
        assert ordered.item("b")["properties"]["updated"].startswith("2024")
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--max-cloud", "50"), ["a", "b"]),
        (("--ids", "c", "b"), ["b", "c"]),
        (("--datetime", "2023-08"), ["a", "b"]),
        (("--datetime", "2023-08-02/2023-09-01"), ["a", "c"]),
        (("--datetime", "2023-08-02/.."), ["a", "c"]),
        (("--datetime", "../2023-08-01"), ["b"]),
        (("--datetime", "2023-08-01T10:00:00Z/2023-08-01T10:00:01Z"), ["b"]),
        (("--datetime", "2023-08-01T12:00:00+02:00/2023-08-01T12:00:01+02:00"), ["b"]),
        (("--collections", "sentinel"), ["a", "b", "c"]),
        (("--bbox", "15.0", "46.04", "15.001", "46.05"), ["a", "b", "c"]),
    ],
)
def test_a_query_narrows_the_list(
    search: Search, three: Catalog, arguments: tuple[str, ...], expected: list[str]
) -> None:
    search(three.write(), *arguments).ends(0)
    assert search.names() == expected


def test_a_scene_that_lasts_is_found_by_any_part_of_its_time(search: Search, catalog: Catalog) -> None:
    catalog.add(
        "long", properties={"datetime": None, "start_datetime": "2023-08-01", "end_datetime": "2023-08-31T00:00:00Z"}
    )
    assert search(catalog.write(), "--datetime", "2023-08-20/2023-12").code == 0
    assert search(catalog.root, "--datetime", "2023-09/2023-12").code == 3


@given(year=st.integers(1, 9998), month=st.integers(1, 12), day=st.integers(1, 28))
def test_a_year_a_month_and_a_day_stand_for_all_of_it(year: int, month: int, day: int) -> None:
    first, last = parse_interval(f"{year:04}-{month:02}-{day:02}")
    assert (last - first).total_seconds() == pytest.approx(86400, abs=1e-3)
    assert parse_interval(f"{year:04}-{month:02}")[1].month == month
    assert parse_interval(f"{year:04}") == (parse_interval(f"{year:04}-01")[0], parse_interval(f"{year:04}-12")[1])


@pytest.mark.parametrize("text", ["yesterday", "2023-13", "2023-08-01/2022", "2023/2024/2025", "20230801x"])
def test_a_wrong_date_is_a_mistake_of_the_user(text: str) -> None:
    with pytest.raises(UsageError):
        parse_interval(text)


def test_an_empty_search_tells_the_query(search: Search, three: Catalog) -> None:
    arguments = ("--datetime", "1999", "--max-cloud", "12.5", "--collections", "sentinel", "--ids", "b")
    completed = search(three.write(), *arguments, "--bbox", "15", "46", "15.5", "46.5")
    completed.ends(3, "sentinel", "1999", "12.5 %", "ids b", "the area 15 46 15.5 46.5")
    assert not search.items.exists()
    assert not (search.folder / "grid.json").exists()


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("--collections", "landsat"), "there is no collection landsat; there are sentinel"),
        (("--bbox", "46", "15", "46.1", "15.1"), "with latitude and longitude swapped 3 scenes match"),
        (("--bbox", "-60", "-10", "-59", "-9"), "without the area 3 of 3 would"),
        (("--datetime", "1999"), "without the dates 3 of 3 would"),
        (("--datetime", "2023-09", "--max-cloud", "10"), "without the dates 1 of 3 would; without the limit of cloud"),
    ],
)
def test_an_empty_search_says_what_would_match(
    search: Search, three: Catalog, arguments: tuple[str, ...], advice: str
) -> None:
    search(three.write(), *arguments).ends(3, "no scene matches", advice)


def test_a_collection_that_an_api_lacks_is_named_with_those_that_it_has(search: Search, web: Loopback) -> None:
    url = serve_api(web, [])
    web.routes["/api/collections"] = lambda _: {"collections": [{"id": "sentinel-2-l2a"}, {"id": "landsat"}]}
    search(url, "--collections", "sentinel-2").ends(3, "there are landsat, sentinel-2-l2a")
    completed = search(url, "--collections", "landsat")
    assert "widen the dates, area or cloud cover" in completed.stderr


def test_an_area_cuts_the_grid_on_the_pixels_of_the_scenes(search: Search, three: Catalog, tmp_path: Path) -> None:
    ring = [[15.001, 46.049], [15.004, 46.049], [15.003, 46.052], [15.001, 46.049]]
    area = {"type": "Polygon", "coordinates": [ring]}
    (tmp_path / "area.json").write_text(json.dumps({"type": "Feature", "properties": {}, "geometry": area}))
    search(three.write(), "--area", tmp_path / "area.json").ends(0)
    grid = search.grid
    assert (grid["transform"][2] - LEFT) % STEP == 0
    assert (grid["transform"][5] - TOP) % STEP == 0
    assert 20 < grid["shape"][1] < 28


def test_the_grid_of_a_wide_area_covers_its_bulging_edges(search: Search, three: Catalog) -> None:
    from pyproj import Transformer

    arguments = ("--bbox", 10, 45, 20, 47, "--crs", "EPSG:32633", "--resolution", 1000)
    assert search(three.write(), *arguments).code == 0
    _, south = Transformer.from_crs("EPSG:4326", "EPSG:32633", always_xy=True).transform(15, 45)
    grid = search.grid
    bottom = grid["transform"][5] - 1000 * grid["shape"][0]
    assert south - 1000 < bottom <= south


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[]",
            "5",
            '{"type": "FeatureCollection", "features": []}',
            '{"type": "Point", "coordinates": [500000, 5000000]}',
        ),
        # Levels and numbers that JSON allows and that no area has.
        *(f'{{"type": "Polygon", "coordinates": {"[" * depth}{"]" * depth}}}' for depth in (100, 900, 100_000)),
        *(f'{{"type": "Point", "coordinates": [15, {number}]}}' for number in ("1e999", "NaN", "9" * 320, "9" * 5000)),
    ],
    ids=range(11),
)
def test_an_area_that_is_no_area_in_degrees_is_told(search: Search, three: Catalog, tmp_path: Path, text: str) -> None:
    (tmp_path / "area.json").write_text(text)
    completed = search(three.write(), "--area", tmp_path / "area.json").ends(3, "area.json")
    assert len(completed.stderr) < 500


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--bbox", "1", "2", "3"), ""),
        (("--bbox", "5", "2", "3", "4"), ""),
        (("--bbox", "500000", "5000000", "500100", "5000100"), ""),
        (("--crs", "EPSG:999999", "--resolution", "10"), ""),
        (("--crs", "EPSG:99999"), "search.crs: there is no CRS EPSG:99999"),
        (("--url", "http://127.0.0.1:9"), ""),
        (("--datetime", "soon"), ""),
    ],
)
def test_a_wrong_option_is_a_mistake_of_the_user(
    search: Search, three: Catalog, arguments: tuple[str, ...], named: str
) -> None:
    search(three.write(), *arguments).ends(2, named)


def test_scenes_that_lack_an_asset_are_listed(search: Search, three: Catalog) -> None:
    del three.items[0]["assets"]["red"]
    del three.items[2]["assets"]["scl"], three.items[2]["assets"]["blue"]
    search(three.write()).ends(
        3, "2 of 3 scenes lack assets", "no red in b", "no blue, scl in c", "there are blue, red, scl"
    )


HOSTILE = [
    "../../x",
    "../../../../../../etc/passwd",
    "file:///etc/passwd",
    "/etc/passwd",
    "/vsicurl/http://127.0.0.1/x.tif",
    "/vsizip//vsicurl/http://127.0.0.1/x.zip",
    "<VRTDataset rasterXSize='1'></VRTDataset>",
    "ftp://127.0.0.1/x.tif",
    "s3:///etc/passwd",
    "gs://bucket/x.tif",
    "http://[::1/x.tif",
    "x\n.tif",
    "//127.0.0.1/x.tif",
]


@pytest.mark.parametrize("href", HOSTILE)
def test_a_hostile_address_is_refused(search: Search, three: Catalog, href: str) -> None:
    three.items[1]["assets"]["red"]["href"] = href
    search(three.write()).ends(8, "scene a, asset red")
    assert not search.items.exists()


@pytest.mark.parametrize("href", ["file:///etc/passwd", "/vsicurl/http://127.0.0.1/x.tif", "<VRTDataset></VRTDataset>"])
def test_a_hostile_address_of_an_api_is_refused(
    search: Search, items: list[dict[str, Any]], web: Loopback, href: str
) -> None:
    items[0]["assets"]["red"]["href"] = href
    search(serve_api(web, items)).ends(8, "scene b, asset red")
    assert {request.path for request in web.received} <= {"/api", "/api/search", "/api/collections/sentinel"}, (
        "nothing else"
    )


def test_a_hostile_address_of_an_asset_that_nobody_wants_does_no_harm(search: Search, three: Catalog) -> None:
    three.items[0]["assets"]["thumbnail"] = {"href": "../../../x.png"}
    assert search(three.write()).code == 0
    assert "thumbnail" not in search.item("b")["assets"]


def test_a_link_out_of_the_folder_is_refused(search: Search, three: Catalog, tmp_path: Path) -> None:
    three.write()
    (tmp_path / "outside.json").write_text("{}")
    for href in ("../outside.json", "http://127.0.0.1:9/item.json", str(tmp_path / "outside.json")):
        head = {"type": "Catalog", "id": "c", "links": [{"rel": "item", "href": href}]}
        (three.root / "catalog.json").write_text(json.dumps(head))
        assert search(three.root).code == 8


def test_a_symlink_out_of_the_folder_is_refused(search: Search, three: Catalog) -> None:
    three.write()
    (three.root / "s0" / "red.tif").unlink()
    (three.root / "s0" / "red.tif").symlink_to("/etc/passwd")
    assert search(three.root).code == 8


@given(first=st.text(max_size=150), second=st.text(max_size=150))
def test_two_ids_never_get_one_file_name(first: str, second: str) -> None:
    assert (scene_name(first) == scene_name(second)) == (first == second)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}", scene_name(first))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "headers": {"Retry-After": "0"}}, {"cut": 30}])
def test_a_server_that_fails_twice_still_gives_all_scenes(
    search: Search, items: list[dict[str, Any]], three: Catalog, web: Loopback, fault: dict[str, Any]
) -> None:
    three.write()
    for path in ("/api", "/api/search", "/catalog/catalog.json", "/catalog/s1/item.json"):
        web.fail(path, times=2, **fault)
    for url in (serve_api(web, items), f"{web.url}/catalog/catalog.json"):
        search(url).ends(0)
        assert search.names() == ["a", "b", "c"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", ["/api", "/api/search"])
@pytest.mark.parametrize("fault", [{"status": 503}, {"cut": 30}])
def test_a_server_that_fails_for_ever_ends_with_code_5(
    search: Search, items: list[dict[str, Any]], web: Loopback, path: str, fault: dict[str, Any]
) -> None:
    url = serve_api(web, items)
    web.fail(path, times=None, **fault)
    search(url).ends(5, "127.0.0.1", "try again later")
    assert not search.items.exists()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_nobody_runs_ends_with_code_5(search: Search) -> None:
    search("http://127.0.0.1:9/api").ends(5, "127.0.0.1")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_never_answers_is_given_up(
    search: Search, items: list[dict[str, Any]], web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.fetch.retry.TIMEOUT", (0.1, 0.1))
    url = serve_api(web, items)
    web.fail("/api/search", times=None, pause=0.3)
    assert search(url).code == 5


@pytest.mark.usefixtures("impatient")
def test_a_long_retry_after_is_capped(
    search: Search, items: list[dict[str, Any]], web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.fetch.retry.MAX_RETRY_AFTER", 0.01)
    web.fail("/api", headers={"Retry-After": "99999"}, status=429)
    assert search(serve_api(web, items)).code == 0


def test_a_search_without_an_end_is_bounded_in_scenes(
    search: Search, items: list[dict[str, Any]], web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_ITEMS", 2)
    search(serve_api(web, items, page=1)).ends(3, "more than 2 scenes", "narrow its dates, area or max_cloud")
    assert not search.items.exists()


def test_pages_in_a_circle_end(search: Search, items: list[dict[str, Any]], web: Loopback) -> None:
    url = serve_api(web, items, page=1)
    inner = web.routes["/api/search"]

    def circle(request: Any) -> Any:
        page = inner(request)
        page["links"] = [{"rel": "next", "href": f"{web.url}/api/search"}]
        return page

    web.routes["/api/search"] = circle
    search(url).ends(5, "pagination loop")
    assert len(web.requests("/api/search")) == 2, "stopped after the first repeat"
    assert not search.items.exists()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"<html>log in</html>", 200, 3), (b"[]", 200, 3), (b"who are you", 403, 3), (b"gone", 404, 3)],
)
def test_an_answer_that_is_no_stac_is_told(search: Search, web: Loopback, body: bytes, status: int, code: int) -> None:
    web.fail("/api", times=None, body=body, status=status)
    completed = search(f"{web.url}/api?token=secret").ends(code, urlsplit(web.url).hostname)
    assert "secret" not in completed.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"links": 5}', '{"links": [5]}', '{"links": [{}]}'])
def test_a_catalog_that_is_no_catalog_is_told(search: Search, three: Catalog, text: str) -> None:
    (three.write() / "catalog.json").write_text(text)
    search(three.root).ends(3, "catalog")


def test_scenes_without_a_geometry_are_found_only_without_an_area(search: Search, catalog: Catalog) -> None:
    catalog.add("nowhere")["geometry"] = None
    assert search(catalog.write()).code == 0
    assert search(catalog.root, "--bbox", "15", "46", "16", "47").code == 3


def test_scenes_of_two_zones_need_a_resolution_and_get_one_grid(search: Search, catalog: Catalog) -> None:
    catalog.add("east", crs="EPSG:32633", left=300000.0)
    catalog.add("west", crs="EPSG:32632", left=700000.0)
    completed = search(catalog.write())
    assert completed.code in (0, 2), completed.stderr
    search(catalog.root, "--crs", "EPSG:3035", "--resolution", "20").ends(0)
    grid = search.grid
    assert grid["crs"] == "EPSG:3035"
    assert grid["transform"][0] == 20


FAR = [[1e308, 0], [1e308, 1e308]]
MISTAKES: dict[str, tuple[Any, str]] = {
    "no properties": (("properties", None), "is not a STAC Item"),
    "no assets": (("assets", []), "is not a STAC Item"),
    "asset without href": (("assets", {"red": {}}), "is not a STAC Item"),
    "id that is a number": (("id", 5), "is not a STAC Item"),
    "geometry that is a word": (("geometry", "here"), "is not a STAC Item"),
    "NaN as nodata": (("assets", "blue", "raster:bands", 0, "nodata", math.nan), "assets.blue.raster:bands.0.nodata"),
    "NaN in a field of nobody": (("properties", "x:y", [math.nan]), "properties.x:y.0 is nan"),
    "null in a shape": (("assets", "red", "proj:shape", [None, None]), "assets.red.proj:shape.0 is None"),
    "a transform of five": (("properties", "proj:transform", [1, 2, 3, 4, 5]), "the six or nine numbers"),
    "a transform without area": (("properties", "proj:transform", [0, 0, 3, 0, 0, 5]), "can be inverted"),
    "null as link": (("links", [None]), "links.0 is None: write an object"),
    "a CRS as EPSG code": (("properties", "proj:epsg", "EPSG:3035"), "properties.proj:epsg is 'EPSG:3035'"),
    "a number as CRS": (("properties", "proj:code", 3035), "properties.proj:code is 3035: write text"),
    "half a letter": (("properties", "title", "\ud800"), "properties.title is '\\ud800': it is not Unicode text"),
    "a number as band": (("assets", "blue", "raster:bands", [5]), "assets.blue.raster:bands.0 is 5"),
    "bands as an object": (("assets", "blue", "raster:bands", {"nodata": 0}), "raster:bands is {'nodata': 0}"),
    "a size as text": (("assets", "blue", "file:size", "12407"), "assets.blue.file:size is '12407'"),
    "a CRS that does not exist": (("properties", "proj:code", "EPSG:999999"), "no CRS EPSG:999999"),
    "a year that no clock has": (("properties", "datetime", "0001-01-01T00:00:00+14:00"), "no valid datetime"),
    "a polygon of words": (("geometry", "coordinates", "here"), "invalid geometry"),
    "a polygon beyond the sums of floats": (("geometry", "coordinates", [[[0, 0], *FAR, [0, 0]]]), "invalid geometry"),
    "a scale of 0": (("assets", "blue", "raster:bands", 0, "scale", 0), "bands.0.scale is 0: write a scale that"),
    "a scale without an end": (("assets", "blue", "raster:scale", "inf"), "raster:scale is 'inf': write a scale that"),
    "clouds over more than all": (("properties", "eo:cloud_cover", 120), "eo:cloud_cover is 120: input should be less"),
    "clouds over less than nothing": (("properties", "eo:cloud_cover", -1), "eo:cloud_cover is -1: input should be"),
    "a box beyond the pole": (("bbox", [10, 80, 11, 95]), "bbox is [10, 80, 11, 95]: write a south and a north"),
    "a box upside down": (("bbox", [10, 50, 11, 40]), "bbox is [10, 50, 11, 40]: write a south and a north"),
    "a place beyond the pole": (("geometry", "coordinates", [[[0, 89], [1, 89], [1, 95], [0, 89]]]), "not on Earth"),
    "depth": (("properties", "deep", json.loads("[" * 90 + "]" * 90)), "nested in more than 60 levels"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_an_item_is_named_with_the_item_and_the_field(
    search: Search, three: Catalog, mistake: str
) -> None:
    (*keys, last, value), sentence = MISTAKES[mistake]
    owner: Any = three.items[1]
    for key in keys:
        owner = owner[key]
    owner[last] = value
    search(three.write()).ends(3, sentence, str(three.items[1]["id"]))


def test_items_as_providers_write_them_are_accepted_unchanged() -> None:
    """STAC 1.0 and 1.1, null for what is not known, numbers as floats, extensions that eopipe does not know."""
    item = json.loads(next(iter(sorted(SAMPLE.glob("*/*/*.json")))).read_text())
    variants: list[dict[str, Any]] = [
        {"bbox": None, "geometry": None, "collection": None},
        {"bbox": [1, 2, 0, 3, 4, 9.5], "stac_extensions": ["https://x/v1/schema.json"], "x:field": {"a": [None, 1e9]}},
        {"properties": {"datetime": None, "start_datetime": "2020-01-01T00:00:00Z", "end_datetime": "2020-01-02"}},
        {"properties": {"datetime": "2020-01-01T00:00:00.123456789Z", "proj:epsg": None, "proj:geometry": {}}},
        {"properties": {"proj:epsg": 32635, "proj:shape": [10980.0, 10980], "proj:transform": [10, 0, 0, 0, -10, 0]}},
        {"properties": {"proj:epsg": "32635", "proj:transform": [10, 0, 0, 0, -10, 0, 0, 0, 1], "providers": []}},
        {"properties": {"proj:code": "IAU_2015:30100", "providers": [{"name": "ESA", "roles": ["producer"]}]}},
        {"assets": {"a": {"href": "a.tif", "bands": [{"name": "B1", "nodata": "nan", "eo:common_name": "red"}]}}},
        {"assets": {"a": {"href": "a.tif", "raster:bands": [{"scale": 1, "offset": -0.1, "nodata": None}, {}]}}},
        {"assets": {"a": {"href": "https://x/a.tif?sig=1", "file:size": 12, "roles": ["data"], "type": None}}},
        {"links": [{"rel": "self", "href": "https://x/1", "method": "GET", "body": {"a": 1}}]},
    ]
    for variant in variants:
        value = item | variant
        assert as_item(copy.deepcopy(value), "it") == value
