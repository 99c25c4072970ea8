"""A STAC API learns only what it has to, is asked again when it stumbles, and leads to no other host."""

import base64
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import Loopback, Request, serve_api
from scenery import Catalog, Search

from eopipe.fetch.http import token_variable
from eopipe.fetch.retry import MAX_ATTEMPTS
from eopipe.stac import api as reader


@pytest.fixture
def items(catalog: Catalog) -> list[dict[str, Any]]:
    """Four scenes as an API has them."""
    for n in range(4):
        item = catalog.add(f"s{n}", properties={"eo:cloud_cover": 30.0 * n}, shape=(8, 8), driver="GTiff")
        for name, asset in item["assets"].items():
            asset["href"] = f"https://assets.example/{n}/{name}.tif"
    return catalog.items


@pytest.fixture
def api(web: Loopback, items: list[dict[str, Any]]) -> str:
    """The address of an API that has them."""
    return serve_api(web, items)


@pytest.fixture
def other_host(tmp_path: Path) -> Any:
    """Another host."""
    with Loopback(tmp_path, "127.0.0.2") as server:
        yield server


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: Loopback, other_host: Loopback) -> str:
    """A login of the user for the host of the API; what the header then says."""
    file = tmp_path / "netrc"
    home, other = urlsplit(web.url).netloc, urlsplit(other_host.url).netloc
    file.write_text(f"machine {home} login me password SECRET\nmachine {other} login me password OTHER\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    return "Basic " + base64.b64encode(b"me:SECRET").decode()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_on_another_host_is_refused_and_nothing_is_sent_there(
    search: Search, api: str, web: Loopback, other_host: Loopback, login: str, method: str
) -> None:
    inner = web.routes["/api/search"]

    def page_linking_to_other_host(request: Request) -> Any:
        page = inner(request)
        href = f"{other_host.url}/api/search"
        page["links"] = [{"rel": "next", "href": href, "method": method, "body": {}, "headers": {"X-Api-Key": "k"}}]
        return page

    web.routes["/api/search"] = page_linking_to_other_host
    search(api).ends(8, "another host, 127.0.0.2")
    assert other_host.received == []
    assert not search.items.exists()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("path", ["/api", "/api/search", "/api/collections/sentinel"])
def test_a_redirect_to_another_host_is_refused(
    search: Search, api: str, web: Loopback, other_host: Loopback, login: str, status: int, path: str
) -> None:
    web.fail(path, times=None, status=status, headers={"Location": f"{other_host.url}{path}"}, body=b"")
    search(api).ends(8)
    assert other_host.received == []


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1"], ids=["host", "port"])
def test_a_search_link_on_another_host_or_port_is_refused(
    search: Search, api: str, web: Loopback, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv(token_variable(web.url), "T0KEN")
    landing = web.routes["/api"]
    with Loopback(web.folder, host) as other:
        web.routes["/api"] = lambda request: json.loads(
            json.dumps(landing(request)).replace(f"{web.url}/api/search", f"{other.url}/api/search")
        )
        assert search(api).code == 8
        assert other.received == []
    assert {request.headers.get("Authorization") for request in web.received} == {"Bearer T0KEN"}


def test_an_item_of_a_static_catalog_on_another_host_is_refused(
    search: Search, tmp_path: Path, web: Loopback, other_host: Loopback
) -> None:
    head = {"type": "Catalog", "id": "c", "links": [{"rel": "item", "href": f"{other_host.url}/item.json"}]}
    (tmp_path / "head.json").write_text(json.dumps(head))
    assert search(f"{web.url}/head.json").code == 8
    assert other_host.received == []


def test_the_login_is_sent_to_its_own_host(
    search: Search, api: str, web: Loopback, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search(api).code == 0
    assert {request.headers.get("Authorization") for request in web.received} == {login}
    monkeypatch.setenv(token_variable(web.url), "SECRET")
    web.reset()
    assert search(api).code == 0
    assert {request.headers.get("Authorization") for request in web.received} == {"Bearer SECRET"}
    assert not [p for p in search.folder.rglob("*") if p.is_file() and "SECRET" in p.read_text()]


@pytest.mark.parametrize(
    ("home", "href", "becomes"),
    [
        ("https://h.org/v1", "http://h.org/v1/search", "https://h.org/v1/search"),
        ("https://h.org/v1", "https://h.org/v1/search", "https://h.org/v1/search"),
        ("https://h.org:8443/v1", "https://h.org:8443/v1/search", "https://h.org:8443/v1/search"),
        ("http://h.org/v1", "https://h.org/v1/search", "https://h.org/v1/search"),
        ("https://h.org/v1", "http://h.org:8080/v1/search", None),
        ("https://h.org/v1", "https://h.org:8443/v1/search", None),
        ("https://h.org/v1", "https://h.org.evil.net/v1/search", None),
        ("https://h.org/v1", "https://h.org@evil.net/v1/search", None),
        ("https://h.org/v1", "file:///etc/passwd", None),
        ("https://h.org/v1", "http://[::1/", None),
    ],
)
def test_only_the_own_host_is_home_and_https_stays_https(home: str, href: str, becomes: str | None) -> None:
    from eopipe.errors import RefusedError

    stac_io = reader.RetryingStacIO(home, 1.0)
    if becomes is None:
        with pytest.raises(RefusedError):
            stac_io.on_host(href)
    else:
        assert stac_io.on_host(href) == becomes


FILTER = {
    "op": "or",
    "args": [
        {"op": "<=", "args": [{"property": "eo:cloud_cover"}, 40.0]},
        {"op": "isNull", "args": [{"property": "eo:cloud_cover"}]},
    ],
}


@pytest.mark.parametrize(
    ("knows", "sent"),
    [(("filter", "query"), {"filter": FILTER}), (("query",), {"query": {"eo:cloud_cover": {"lte": 40.0}}}), ((), {})],
)
def test_the_server_filters_clouds_in_the_language_that_it_knows(
    search: Search, items: list[dict[str, Any]], web: Loopback, knows: tuple[str, ...], sent: dict[str, Any]
) -> None:
    url = serve_api(web, items, conformance=knows)
    assert search(url, "--max-cloud", 40).code == 0
    query = web.requests("/api/search")[0].value
    assert {key: value for key, value in query.items() if key in ("filter", "query")} == sent
    assert search.names() == ["s0", "s1"], "what a server sends in spite of the filter is dropped"


def test_no_filter_is_sent_when_all_clouds_are_welcome(
    search: Search, items: list[dict[str, Any]], web: Loopback
) -> None:
    assert search(serve_api(web, items, conformance=("filter", "query"))).code == 0
    assert not {"filter", "query"} & set(web.requests("/api/search")[0].value)


def test_the_area_near_180_degrees_asks_also_for_footprints_that_are_not_cut_there(
    search: Search, api: str, web: Loopback
) -> None:
    from shapely.geometry import Point, box, shape

    search(api, "--bbox", 179, 10, -179, 12)
    area = shape(web.requests("/api/search")[0].value["intersects"])
    for point, expected in (((179.5, 11), True), ((-179.5, 11), True), ((0, 11), True), ((90, 11), False)):
        assert area.intersects(Point(point)) is expected
    search(api, "--bbox", -179.5, 10, -179, 12)
    area = shape(web.requests("/api/search")[-1].value["intersects"])
    assert area.is_valid
    # Footprints that cross 180 degrees and intersect the area, drawn the long way round and beyond the line.
    for footprint in (box(-179.2, 10, 179.8, 11), box(179.8, 10, 180.8, 11), box(179.8, 12.5, 180.2, 13)):
        assert area.intersects(footprint)
    assert not area.intersects(box(179, 10, 179.9, 11))
    assert area.bounds[0] >= -180
    assert area.bounds[2] <= 180
    search(api, "--bbox", 15, 46, 16, 47)
    assert web.requests("/api/search")[-1].value["intersects"]["type"] == "Polygon"


@pytest.mark.usefixtures("impatient")
def test_retries_are_logged_and_page_two_is_named_when_it_never_comes(
    search: Search, api: str, web: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    inner = web.routes["/api/search"]

    def only_first_page(request: Request) -> Any:
        web.fail("/api/search", times=None, cut=30)
        return inner(request)

    web.routes["/api/search"] = only_first_page
    with caplog.at_level(logging.WARNING, "eopipe"):
        completed = search(api)
    assert completed.code == 5, completed.stderr
    assert "page 2 of /api/search" in completed.stderr
    assert "127.0.0.1" in completed.stderr
    assert len([line for line in caplog.messages if "event=retry" in line]) == MAX_ATTEMPTS - 1
    assert not search.items.exists()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [{"cut": 30}, {"cut": 30, "drop": ("Content-Length",)}], ids=["told", "untold"])
def test_a_page_that_is_cut_in_the_middle_comes_whole_the_next_time(
    search: Search, api: str, web: Loopback, fault: dict[str, Any]
) -> None:
    web.fail("/api/search", times=2, **fault)
    assert search(api).code == 0
    assert search.names() == ["s0", "s1", "s2", "s3"]
    web.fail("/api/search", times=None, **fault)
    search.to("again")(api).ends(5, "page 1 of /api/search")


@pytest.mark.usefixtures("impatient")
def test_a_second_page_that_stumbles_is_asked_again_and_each_try_is_logged(
    search: Search, api: str, web: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    """503 twice on page 2, then 429 with a wish."""
    inner = web.routes["/api/search"]

    def fail_after_first_page(request: Request) -> Any:
        if "token" not in request.value and not web.faults["/api/search"]:
            web.fail("/api/search", times=2, status=503)
            web.fail("/api/search", status=429, headers={"Retry-After": "1"})
        return inner(request)

    web.routes["/api/search"] = fail_after_first_page
    with caplog.at_level(logging.WARNING, "eopipe"):
        completed = search(api)
    assert completed.code == 0, completed.stderr
    assert search.names() == ["s0", "s1", "s2", "s3"]
    retries = [line for line in caplog.messages if "event=retry" in line]
    assert [line.partition("attempt=")[2][0] for line in retries] == ["1", "2", "3"]
    assert all("page 2 of /api/search" in line for line in retries)
    assert "wait_s=1.0" in retries[2]


@pytest.mark.usefixtures("impatient")
def test_the_last_status_is_told(search: Search, api: str, web: Loopback) -> None:
    web.fail("/api/search", times=None, status=503)
    search(api).ends(5, f"status 503, {MAX_ATTEMPTS} attempts", "127.0.0.1 did not deliver page 1 of /api/search")
    assert len(web.requests("/api/search")) == MAX_ATTEMPTS
    assert not search.items.exists()


def test_a_server_that_wants_more_time_than_there_is_is_given_up_at_once(
    search: Search, api: str, web: Loopback
) -> None:
    web.fail("/api/search", times=None, status=429, headers={"Retry-After": "100"})
    search(api, "--deadline", 20).ends(5, "deadline")


def test_an_answer_that_never_ends_is_refused(search: Search, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    search(api).ends(8, "in one response")


def test_credits_come_from_the_collection_of_the_api(search: Search, api: str, web: Loopback) -> None:
    collection = {"type": "Collection", "id": "sentinel", "license": "CC-BY-4.0", "sci:doi": "10.1/x", "links": []}
    web.routes["/api/collections/sentinel"] = lambda _: collection
    assert search(api).code == 0
    item = search.item("s0")
    assert (item["properties"]["license"], item["properties"]["sci:doi"]) == ("CC-BY-4.0", "10.1/x")
    assert len(web.requests("/api/collections/sentinel")) == 1, "asked once, not for each scene"


def test_an_api_without_the_collection_still_gives_its_scenes(search: Search, api: str) -> None:
    assert search(api).code == 0
    assert "license" not in search.item("s0")["properties"]
