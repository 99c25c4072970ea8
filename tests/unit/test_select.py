"""The selection does not depend on the order of a catalog, and every dropped scene is listed with the reason."""

import copy
import itertools
import json
import random
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, serve_api
from scenery import Catalog, Search

from eopipe.errors import BadInputError
from eopipe.fetch.signing import redact_href
from eopipe.publish import digest
from eopipe.stac.query import Query
from eopipe.stac.select import Ranking, Selection, select, solar_day
from eopipe.text_files import read_json

Item = dict[str, Any]
SQUARE = {"type": "Polygon", "coordinates": [[[15, 46], [16, 46], [16, 47], [15, 47], [15, 46]]]}


def scene(name: str, when: str = "2023-08-01T10:00:00Z", cloud: float | None = 5.0, **other: Any) -> Item:
    geometry = other.pop("geometry", SQUARE)
    assets = {band: {"href": f"{band}.tif"} for band in other.pop("bands", ("red",))}
    properties = {"datetime": when, "eo:cloud_cover": cloud} | other
    return {
        "type": "Feature",
        "id": name,
        "geometry": geometry,
        "properties": properties,
        "assets": assets,
        "links": [],
    }


def box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [corners]}


def chosen(items: list[Item], best: Ranking | None = None, **query: Any) -> Selection:
    """Select among copies in a random order."""
    shuffled = copy.deepcopy(items)
    random.Random(len(items)).shuffle(shuffled)
    return select(shuffled, Query(**query), ("red",), "fail", best or Ranking())


def ids(selection: Selection) -> list[str]:
    return [item["id"] for item in selection.items]


S2 = "S2A_MSIL2A_20200501T095031_{}R079_T33TWL_{}T120000"
OLD, NEW = S2.format("N0301_", "20200501"), S2.format("N0500_", "20230501")


@given(order=st.permutations([scene(OLD), scene(NEW), scene("other")]))
def test_of_two_baselines_the_newest_stays_in_any_order(order: list[Item]) -> None:
    selection = select(copy.deepcopy(order), Query(), ("red",), "fail", Ranking())
    assert ids(selection) == [NEW, "other"]
    reason = "baseline 05.00 instead of 03.01"
    assert selection.dropped == [{"id": OLD, "reason": "superseded", "by": NEW, "why": reason}]


def test_earth_search_and_planetary_computer_tell_versions_in_their_own_ways() -> None:
    take = "GS2A_20200501T095031_025383_N{}"
    earth = [
        scene(f"S2A_33TWL_20200501_{n}_L2A", **{"grid:code": "MGRS-33TWL"})
        | {
            "properties": {
                "datetime": f"2020-05-01T09:5{n}:31Z",
                "grid:code": "MGRS-33TWL",
                "s2:datatake_id": take.format(base),
                "s2:processing_baseline": base,
            }
        }
        for n, base in enumerate(("05.00", "02.14"))
    ]
    assert ids(chosen(earth)) == ["S2A_33TWL_20200501_0_L2A"]
    planetary = [
        scene(S2.format("", day), **{"s2:processing_baseline": base})
        for day, base in (("20200501", "02.14"), ("20201003", "02.12"))
    ]
    assert ids(chosen(planetary)) == [S2.format("", "20200501")], "the baseline counts, not the day it was made"


def test_parts_of_a_granule_that_was_split_are_no_versions() -> None:
    south = scene(S2.format("N0500_", "20230501"), geometry=box(15, 46, 16, 46.45))
    north = scene(S2.format("N0500_", "20230502"), geometry=box(15, 46.4, 16, 47))
    assert len(ids(chosen([south, north]))) == 2


def test_scenes_of_another_tile_level_or_satellite_are_no_versions() -> None:
    names = [NEW, NEW.replace("33TWL", "33TWM"), NEW.replace("L2A", "L1C"), NEW.replace("S2A_", "S2B_")]
    assert ids(chosen([scene(name) for name in names])) == sorted(names)


def test_of_two_copies_the_one_that_was_updated_last_stays_and_the_other_is_told() -> None:
    copies = [scene("a", updated=f"{year}-01-01T00:00:00Z") for year in (2020, 2024, 2022)]
    selection = chosen([*copies, copies[0]])
    assert selection.items[0]["properties"]["updated"].startswith("2024")
    assert [row["updated"][:4] for row in selection.dropped] == ["2020", "2022"]


def test_a_scene_that_came_on_two_pages_is_no_decision() -> None:
    assert chosen([scene("a"), scene("a"), scene("b")]).dropped == []


MONTHS = [scene(f"m{m}d{d}", f"2023-{m:02}-{d:02}T10:00:00Z", 10.0 * d + m) for m in (5, 6) for d in (1, 2, 3, 9)]


@pytest.mark.parametrize(
    ("count", "per", "expected"),
    [
        (1, "all", ["m5d1"]),
        (3, "all", ["m5d1", "m5d2", "m6d1"]),
        (1, "month", ["m5d1", "m6d1"]),
        (2, "month", ["m5d1", "m5d2", "m6d1", "m6d2"]),
        (1, "year", ["m5d1"]),
        (1, "week", ["m5d1", "m5d9", "m6d1", "m6d9"]),
        (99, "all", sorted(item["id"] for item in MONTHS)),
    ],
)
def test_the_clearest_scenes_of_a_window_stay(count: int, per: Any, expected: list[str]) -> None:
    selection = chosen(MONTHS, Ranking(count, per))
    assert ids(selection) == expected
    assert len(selection.dropped) == len(MONTHS) - len(expected)
    assert {row["reason"] for row in selection.dropped} <= {"not best"}


NEW_ZEALAND, WEST, EAST = box(174, -40, 176, -38), box(179, 0, 180, 1), box(-180, 0, -179, 1)
ACROSS = {"type": "MultiPolygon", "coordinates": [WEST["coordinates"], EAST["coordinates"]]}
CLOUDLESS = [scene("z", "2023-08-01", 5), scene("a", "2023-08-02", 5), scene("b", "2023-07-01", None)]
DAYS = [scene(f"{day}{part}", f"2023-08-0{day}T10:00:0{part}Z", day * 10 + part) for day in (1, 2) for part in (0, 9)]
# 23:59 and 00:01 UTC are late morning of one day in New Zealand.
MIDNIGHT = [
    scene("one", "2023-08-01T23:59:00Z", geometry=NEW_ZEALAND),
    scene("two", "2023-08-02T00:01:00Z", geometry=NEW_ZEALAND),
]
AT_180 = [
    scene("west", "2023-08-01T22:10:00Z", geometry=WEST),
    scene("east", "2023-08-01T22:10:20Z", geometry=EAST),
]
WHOLE = scene("whole", "2023-08-07T10:00:00Z", 40)
SLIVER = scene("sliver", "2023-08-01T10:00:00Z", 0, geometry=box(15, 46, 15.05, 47))
RADAR = [scene("part", "2023-08-01T05:00:00Z", None, geometry=box(15, 46, 15.5, 47)), scene("all", "2023-08-07", None)]
TWICE = [scene(f"t{n}", "2023-08-01T10:00:00Z", 10, geometry=box(15, 46, 15.6, 47)) for n in (1, 2)]
DAY = {"group": "solar-day"}


@pytest.mark.parametrize(
    ("items", "count", "ranking", "area", "expected"),
    [
        (CLOUDLESS, 2, {}, None, ["a", "z"]),
        (CLOUDLESS, 1, {}, None, ["z"]),
        (DAYS, 1, DAY, None, ["10", "19"]),
        (DAYS, 1, DAY | {"per": "day"}, None, ["10", "19", "20", "29"]),
        (MIDNIGHT, 1, DAY, None, ["one", "two"]),
        (AT_180, 1, DAY, ACROSS, ["east", "west"]),
        ([SLIVER, WHOLE], 1, DAY, SQUARE, ["whole"]),
        (RADAR, 1, DAY, SQUARE, ["all"]),
        ([*TWICE, WHOLE], 1, DAY, SQUARE, ["whole"]),
    ],
    ids=["no clouds told", "equals", "day", "each day", "midnight", "180 degrees", "sliver", "radar", "overlap"],
)
def test_the_best_scenes_or_days_are_those_that_show_most_of_the_area_without_clouds(
    items: list[Item], count: int, ranking: dict[str, Any], area: Item | None, expected: list[str]
) -> None:
    assert ids(chosen(items, Ranking(count, **ranking, geometry=area), geometry=area)) == expected


def test_a_solar_day_is_that_of_the_place_and_a_sliver_counts_as_clouds_elsewhere() -> None:
    assert {solar_day(item, None).isoformat() for item in MIDNIGHT} == {"2023-08-02"}
    best = Ranking(1, group="solar-day", geometry=SQUARE)
    assert chosen([SLIVER, WHOLE], best, geometry=SQUARE).dropped[0]["cloud"] == pytest.approx(95)


def test_scenes_that_lack_an_asset_can_be_left_out_and_are_told(search: Search, three: Catalog) -> None:
    del three.items[0]["assets"]["red"]
    for number, order in enumerate(itertools.permutations(three.items)):
        three.items = list(order)
        search.to(str(number))(three.write(), "--on-missing", "skip").ends(0)
        selection = read_json(search.to(str(number)).folder / "selection.json")
        assert [row["id"] for row in selection["scenes"]] == ["a", "c"]
        assert selection["dropped"] == [{"id": "b", "reason": "missing asset", "assets": ["red"]}]


@given(order=st.permutations(range(20)))
def test_one_scene_of_twenty_that_lacks_a_band_is_named_in_any_order(order: list[int]) -> None:
    items = [scene(f"s{n:02}", bands=("blue",) if n == 7 else ("red",)) for n in order]
    with pytest.raises(BadInputError, match=r"1 of 20 scenes lack assets: no red in s07 \(there are blue, red\)"):
        select(copy.deepcopy(items), Query(), ("red",), "fail", Ranking())
    selection = select(copy.deepcopy(items), Query(), ("red",), "skip", Ranking())
    assert ids(selection) == [f"s{n:02}" for n in range(20) if n != 7]
    assert selection.dropped == [{"id": "s07", "reason": "missing asset", "assets": ["red"]}]


def test_when_all_scenes_lack_an_asset_there_is_nothing_to_skip(search: Search, three: Catalog) -> None:
    for item in three.items:
        del item["assets"]["red"]
    search(three.write(), "--on-missing", "skip").ends(3, "3 of 3 scenes lack assets: no red in a, b, c (there are")


def test_scenes_that_lack_the_same_asset_are_named_together() -> None:
    items = [scene(f"s{n}", bands=("blue",) if n else ()) for n in range(14)]
    names = ", ".join(f"s{n}" for n in (1, 10, 11, 12, 13, 2, 3, 4, 5, 6))
    sentence = rf"14 of 14 scenes lack assets: no blue, red in s0; no red in {names} and 3 more \(there are blue\)"
    with pytest.raises(BadInputError, match=sentence):
        select(items, Query(), ("blue", "red"), "fail", Ranking())


def test_the_list_has_a_digest_that_only_its_scenes_change(search: Search, three: Catalog) -> None:
    search.to("one")(three.write())
    three.items[0]["properties"]["created"] = "2024"
    search.to("two")(three.write())
    search.to("three")(three.write(), "--best", "3", "--per", "month")
    first, second, again = (
        read_json(search.to(n).folder / "selection.json")["digest"] for n in ("one", "two", "three")
    )
    assert first != second == again


def test_anybody_can_check_the_digest_of_the_list(search: Search, three: Catalog) -> None:
    assert search(three.write()).code == 0
    selection = read_json(search.folder / "selection.json")
    files = sorted(search.items.glob("*.geojson"))
    lines = "".join(f"{sha256(file.read_bytes()).hexdigest()}  {file.stem}\n" for file in files)
    assert selection["digest"] == sha256(lines.encode()).hexdigest()
    assert [row["name"] for row in selection["scenes"]] == [file.stem for file in files]


def test_best_of_the_command_line_drops_the_cloudy(search: Search, three: Catalog) -> None:
    assert search(three.write(), "--best", "1", "--per", "month", "--group", "solar-day").code == 0
    selection = read_json(search.folder / "selection.json")
    assert [(row["id"], row["solar_day"]) for row in selection["scenes"]] == [("b", "2023-08-01"), ("c", "2023-09-01")]
    assert selection["dropped"] == [{"id": "a", "reason": "not best", "window": "2023-08", "place": 2, "cloud": 50.0}]
    assert not list(search.items.glob("selection*.geojson"))


def test_widening_the_dates_leaves_the_old_scenes_byte_for_byte(search: Search, three: Catalog) -> None:
    search.to("narrow")(three.write(), "--datetime", "2023-08-01")
    search.to("wide")(three.root, "--datetime", "2023")
    files = [search.to(name).items / "b.geojson" for name in ("narrow", "wide")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert digest(search.to("narrow").items) != digest(search.to("wide").items)


def test_a_cloud_cover_that_is_no_number_is_told(search: Search, three: Catalog) -> None:
    three.items[1]["properties"]["eo:cloud_cover"] = "none"
    search(three.write()).ends(3, "scene 'a': properties.eo:cloud_cover is 'none': write a number")


SIGNED = {
    "https://h.org/a.tif": "https://h.org/a.tif",
    "https://h.org/a.tif?v=2": "https://h.org/a.tif?v=2",
    "https://h.org/a.tif?b=%20x&v=2": "https://h.org/a.tif?b=%20x&v=2",
    "https://h.org/a.tif?st=1&se=2&sp=rl&sv=3&sr=c&skoid=4&sig=S%2F": "https://h.org/a.tif",
    "https://h.org/a.tif?se=2": "https://h.org/a.tif?se=2",
    "https://h.org/a.tif?v=2&X-Amz-Signature=S&X-Amz-Date=1&x-amz-security-token=T": "https://h.org/a.tif?v=2",
    "https://h.org/a.tif?AWSAccessKeyId=A&Signature=S&Expires=1": "https://h.org/a.tif",
    "https://h.org/a.tif?X-Goog-Signature=S&X-Goog-Credential=C": "https://h.org/a.tif",
    "https://h.org/a.tif?Expires=1&Key-Pair-Id=K&Policy=P&Signature=S": "https://h.org/a.tif",
    "https://h.org/a.tif?token=T&access_token=U&api_key=V": "https://h.org/a.tif",
    "https://name:word@h.org:8/a.tif": "https://h.org:8/a.tif",
    "s3://bucket/a b.tif": "s3://bucket/a b.tif",
    "folder/a.tif": "folder/a.tif",
}


@pytest.mark.parametrize("href", SIGNED)
def test_what_signs_an_address_is_not_kept(href: str) -> None:
    assert redact_href(href) == SIGNED[href]


def test_no_signature_of_a_server_reaches_a_file(search: Search, three: Catalog, web: Loopback) -> None:
    items = []
    for item in three.items:
        assets = {n: a | {"href": f"https://h.org/{n}.tif?sig=SECRET&se=1"} for n, a in item["assets"].items()}
        links = [{"rel": "self", "href": "https://h.org/item?token=SECRET"}]
        items.append(item | {"assets": assets, "links": links})
    assert search(serve_api(web, items)).code == 0
    assert (search.items / "a.geojson").is_file()
    assert not [p for p in search.folder.rglob("*") if p.is_file() and "SECRET" in p.read_text()]


def catalog_with_credits(catalog: Catalog) -> None:
    """Put the scenes of a catalog into a collection with licence and citation."""
    head = json.loads((catalog.write() / "catalog.json").read_text())
    terms = [{"rel": "license", "href": "https://h.org/terms"}, {"rel": "cite-as", "href": "https://doi.org/10.1/x"}]
    attribution = {
        "license": "CC-BY-4.0",
        "providers": [{"name": "An agency", "roles": ["producer"]}],
        "sci:doi": "10.1/x",
        "sci:citation": "An agency (2023): Scenes",
    }
    collection = head | attribution | {"type": "Collection", "links": head["links"] + terms}
    (catalog.root / "collection.json").write_text(json.dumps(collection))
    head["links"] = [{"rel": "child", "href": "./collection.json"}]
    (catalog.root / "catalog.json").write_text(json.dumps(head))


def test_licence_and_citation_come_from_the_collection(search: Search, three: Catalog) -> None:
    three.items[0]["properties"]["license"] = "CC0-1.0"
    catalog_with_credits(three)
    assert search(three.root).code == 0
    explicit, inherited_item = (search.item(name) for name in ("b", "a"))
    assert explicit["properties"]["license"] == "CC0-1.0", "the scene's own word counts"
    properties = inherited_item["properties"]
    assert (properties["license"], properties["sci:doi"]) == ("CC-BY-4.0", "10.1/x")
    assert properties["sci:citation"] == "An agency (2023): Scenes"
    assert properties["providers"][0]["name"] == "An agency"
    assert {link["rel"]: link["href"] for link in inherited_item["links"]} == {
        "license": "https://h.org/terms",
        "cite-as": "https://doi.org/10.1/x",
    }
    assert any("/scientific/" in schema for schema in inherited_item["stac_extensions"])
