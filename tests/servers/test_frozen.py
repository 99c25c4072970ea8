"""From a real STAC API the same list is frozen: the best scenes, no duplicates, sorted, unsigned, with a digest."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from catalogs import CATALOGS
from scenery import Run
from server_requests import dropped, filled, names, search
from shapely.geometry import box, mapping
from stac_api import Api

from eopipe.stac.api import from_url
from eopipe.stac.query import Query
from eopipe.text_files import read_json

# Day of 2023 and percent of cloud.
WEATHER = {"0105": 30, "0120": 10, "0131": 60, "0202": 5, "0214": 80, "0301": 90}


def weather() -> dict[str, dict[str, Any]]:
    """A scene for each day, each in a place of its own."""
    return {
        f"s{day}": {
            "datetime": f"2023-{day[:2]}-{day[2:]}T10:00:00Z",
            "eo:cloud_cover": cloud,
            "geometry": dict(mapping(box(n, 40, n + 1, 41))),
        }
        for n, (day, cloud) in enumerate(WEATHER.items())
    }


@pytest.fixture(scope="module")
def year(api: Api) -> str:
    """A collection of six scenes."""
    item = read_json(min((CATALOGS["sample"] / "sentinel-2-l2a-romania").glob("*/*.json")))
    return filled(api, item, weather(), "year")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--best", 1, "--per", "month"), ["s0120", "s0202", "s0301"]),
        (("--best", 2, "--per", "month"), ["s0105", "s0120", "s0202", "s0214", "s0301"]),
        (("--best", 2), ["s0120", "s0202"]),
        (("--best", 1, "--per", "month", "--max-cloud", 79), ["s0120", "s0202"]),
    ],
)
def test_the_clearest_of_each_window_stay(
    api: Api, year: str, tmp_path: Path, run: Run, arguments: tuple[object, ...], expected: list[str]
) -> None:
    completed = search(run, tmp_path, api, "--collections", year, *arguments)
    assert completed.code == 0, completed.stderr
    assert names(tmp_path) == expected
    dropped_ids = {row["id"] for row in dropped(tmp_path) if row["reason"] == "not best"}
    cloudy = {f"s{day}" for day, cloud in WEATHER.items() if "--max-cloud" in arguments and cloud > 79}
    assert dropped_ids == {f"s{day}" for day in WEATHER} - set(expected) - cloudy


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"max_cloud": 30.0}, ["s0105", "s0120", "s0202"]),
        ({"datetime": "2023-02"}, ["s0202", "s0214"]),
        ({"geometry": dict(mapping(box(0.2, 40.2, 1.5, 40.8)))}, ["s0105", "s0120"]),
        ({"ids": ("s0301", "s0105")}, ["s0105", "s0301"]),
        ({"max_cloud": 30.0, "datetime": "../2023-01-31"}, ["s0105", "s0120"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_server_itself_filters(api: Api, year: str, query: dict[str, Any], expected: list[str]) -> None:
    """What the server sends, before eopipe filters it again."""
    items = from_url(api.url, Query(collections=(year,), **query), 60.0)
    assert sorted(item["id"] for item in items) == expected


def test_a_scene_of_two_collections_comes_once_and_the_newer_copy_stays(
    api: Api, scene: dict[str, Any], tmp_path: Path, run: Run
) -> None:
    for number, name in enumerate(("copies-a", "copies-b")):
        # pgstac stores `updated` as it is sent.
        changes = {identity: {"updated": f"202{number}-01-01T00:00:00Z"} for identity in ("both", f"only-{number}")}
        filled(api, scene, changes, name)
    completed = search(run, tmp_path, api, "--collections", "copies-a", "copies-b")
    assert completed.code == 0, completed.stderr
    assert names(tmp_path) == ["both", "only-0", "only-1"]
    assert read_json(tmp_path / "items/both.geojson")["collection"] == "copies-b"
    assert dropped(tmp_path) == [{"id": "both", "reason": "duplicate", "updated": "2020-01-01T00:00:00Z"}]


def test_the_list_is_sorted_unsigned_and_has_a_digest_that_anybody_can_check(
    api: Api, scene: dict[str, Any], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, dict[str, Any]] = {f"s{n * 7 % 30:02}": {} for n in range(30)}
    name = filled(api, scene, changes, "signed", sign="?se=2026-01-01&sp=r&sig=SECRET")
    digests = set()
    for page in (100, 7):
        monkeypatch.setattr("eopipe.stac.api.PAGE", page)
        folder = tmp_path / str(page)
        assert search(run, folder, api, "--collections", name).code == 0
        selection = read_json(folder / "selection.json")
        assert [row["id"] for row in selection["scenes"]] == sorted(changes)
        files = sorted((folder / "items").glob("*.geojson"))
        lines = "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.stem}\n" for file in files)
        assert selection["digest"] == sha256(lines.encode()).hexdigest()
        assert not [path for path in folder.rglob("*") if path.is_file() and "SECRET" in path.read_text()]
        assert read_json(files[0])["assets"]["red"]["href"].endswith("B04.tif")
        digests.add(selection["digest"])
    assert len(digests) == 1, "the size of the pages does not matter"


@pytest.mark.parametrize("name", sorted(CATALOGS))
def test_every_scene_of_a_catalog_is_in_the_server(api: Api, name: str) -> None:
    if not CATALOGS[name].is_dir():
        pytest.skip("the shared catalog is not beside this checkout")
    for path in CATALOGS[name].glob("*/collection.json"):
        expected_ids = sorted(read_json(p)["id"] for p in path.parent.glob("*/*.json"))
        items = from_url(api.url, Query(collections=(read_json(path)["id"],)), 60.0)
        assert sorted(item["id"] for item in items) == expected_ids
        assert expected_ids
