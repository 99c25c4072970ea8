"""What servers and items can make eopipe do: no mixed versions, no waiting past a deadline, no request that the user
did not allow, no login for another origin."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from loopback import Loopback
from remote_assets import item_of, loopback_session, put, tif
from scenery import Fetch, Run, Search, write_raster

from eopipe.config import validate
from eopipe.errors import BadInputError, RefusedError, UpstreamError
from eopipe.fetch.addresses import AddressGuard, is_link_local, is_public
from eopipe.fetch.range_reader import open_range_reader

DATES = ("Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("metadata", [False, True], ids=["free", "pinned"])
@pytest.mark.parametrize(
    ("drop", "headers"),
    [
        (("ETag",), {}),
        (("ETag",), {"Last-Modified": DATES[1]}),
        ((), {"ETag": '"v2"'}),
        ((), {"ETag": 'W/"v1"'}),
        ((), {"ETag": '"v1"', "Content-Range": "bytes 70000-199999/300000"}),
        ((), {"ETag": '"v1"', "Content-Range": "bytes 70000-199999/*"}),
        ((), {"ETag": '"v1"', "Content-Range": "bytes 0-129999/200000"}),
        ((), {"ETag": '"v1"', "Content-Range": "nonsense"}),
    ],
    ids=["no ETag", "time alone", "another ETag", "weak ETag", "another length", "no length", "another place", "words"],
)
def test_a_range_that_does_not_name_the_version_that_was_begun_is_not_appended(
    fetch: Fetch, web: Loopback, metadata: bool, drop: tuple[str, ...], headers: dict[str, str]
) -> None:
    old, new = tif(200_000, 1), tif(200_000, 2)
    put(web, {"red": old}, metadata=metadata)
    web.fail("/red.tif", cut=70_000, headers={"ETag": '"v1"'}, body=old)
    item = put(web, {"red": new}, metadata=metadata)
    spans = {"Content-Range": f"bytes 70000-{len(new) - 1}/{len(new)}"} | headers
    web.fail("/red.tif", status=206, body=new[70_000:], ignore_range=True, drop=drop, headers=spans)
    fetch(item).ends(0)
    assert fetch.brought({"red": new})
    assert [request.headers.get("Range") for request in web.received] == [None, "bytes=70000-", None]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({"headers": {"ETag": '"v1"'}}, {"drop": ("ETag",)}),
        ({"headers": {"ETag": 'W/"v1"'}}, {"headers": {"ETag": 'W/"v2"'}}),
        ({"drop": ("ETag",), "headers": {"Last-Modified": DATES[0]}}, {"drop": ("ETag",)}),
        ({"drop": ("ETag",), "headers": {"Last-Modified": DATES[0]}}, {"headers": {"ETag": '"v2"'}}),
    ],
    ids=["no ETag later", "another weak ETag", "no Last-Modified later", "an ETag later"],
)
def test_blocks_of_a_version_that_the_directory_is_not_of_are_not_read(
    web: Loopback, first: dict[str, Any], later: dict[str, Any]
) -> None:
    (web.folder / "red.tif").write_bytes(tif(200_000))
    web.fail("/red.tif", **first)
    reader = open_range_reader(f"{web.url}/red.tif", "red", loopback_session())
    spans = {"Content-Range": "bytes 100000-100009/200000"} | later.get("headers", {})
    web.fail("/red.tif", status=206, body=bytes(10), ignore_range=True, **later | {"headers": spans})
    with pytest.raises(UpstreamError, match="changed while ranges of it were read"):
        reader.read(100_000, 10)


def test_ranges_of_a_server_that_names_no_version_are_not_put_together(web: Loopback) -> None:
    (web.folder / "red.tif").write_bytes(tif(200_000))
    web.fail("/red.tif", times=None, drop=("ETag",))
    with pytest.raises(BadInputError, match=r"127\.0\.0\.1 does not name the version of the file"):
        open_range_reader(f"{web.url}/red.tif", "red", loopback_session())


def test_a_file_of_a_catalog_that_is_replaced_while_it_is_read_is_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "red.tif").write_bytes(tif(9_000, 1))
    reader = open_range_reader("red.tif", "red", None, tmp_path)
    assert reader.read(0, 10) == tif(9_000, 1)[:10]
    (tmp_path / "new.tif").write_bytes(tif(9_000, 2))
    (tmp_path / "new.tif").replace(tmp_path / "red.tif")
    with pytest.raises(UpstreamError, match="red changed while it was read"):
        reader.read(100, 10)


# Without its deadline a client would wait as long; a busy machine needs no half of it.
TRICKLE_S = 300
# How a server can keep a client busy: the beginning of its response, and what it repeats every tenth of a second.
TRICKLES = {
    "status line": (b"", b"H"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "header": (b"HTTP/1.1 200 OK\r\n", b"X"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b" "),
    "body without an end": (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "length of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: 1\r\n"),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 999999\r\n\r\n", b" "),
}


@contextmanager
def trickling(begin: bytes, more: bytes) -> Iterator[str]:
    """A server whose responses go on letter by letter, for longer than any test should wait."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def respond(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(begin)
            for _ in range(10 * TRICKLE_S):
                if ended.wait(0.1):
                    return
                connection.sendall(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=respond, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("kind", TRICKLES)
def test_a_deadline_holds_for_a_response_that_trickles(fetch: Fetch, search: Search, kind: str) -> None:
    with trickling(*TRICKLES[kind]) as url:
        started = time.monotonic()
        search(f"{url}/api", "--deadline", 0.5).ends(3 if kind == "redirect" else 5)
        item = item_of({"red": {"href": f"{url}/red.tif"}})
        fetch(item, "--deadline", 0.5).ends(3 if kind == "redirect" else 5)
        assert time.monotonic() - started < TRICKLE_S / 2


def test_the_deadline_of_a_search_holds_for_child_catalogs_and_pages(
    search: Search, tmp_path: Path, web: Loopback
) -> None:
    with trickling(*TRICKLES["body without an end"]) as url:
        port = urlsplit(url).port
        served = urlsplit(web.url).port
        relay = {"type": "Catalog", "id": "c", "links": [{"rel": "child", "href": f"http://127.0.0.1:{served}/slow"}]}
        (tmp_path / "catalog.json").write_text(json.dumps(relay))
        web.fail("/slow", times=None, status=307, headers={"Location": f"http://127.0.0.1:{port}/x"}, body=b"")
        assert search(f"{web.url}/catalog.json").code == 8, "another port is another origin"
    web.reset()
    web.fail("/slow", times=None, drip=TRICKLE_S / 60, body=b" " * (61 * 16_384))
    started = time.monotonic()
    search(f"{web.url}/catalog.json", "--deadline", 0.5).ends(5, "not within 0.5 s")
    assert time.monotonic() - started < TRICKLE_S / 2


def test_the_deadline_holds_for_a_bucket_that_trickles(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(key, raising=False)
    for kind in ("header", "body"):
        begin, more = TRICKLES[kind]
        dated = begin.replace(b"\r\n\r\n", b'\r\nETag: "a"\r\nLast-Modified: %b\r\n\r\n' % DATES[0].encode())
        with trickling(dated, more) as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            started = time.monotonic()
            fetch(item_of({"red": {"href": "s3://scenes/red.tif"}}), "--deadline", 0.5).ends(5)
            assert time.monotonic() - started < TRICKLE_S / 2


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        *[(address, False) for address in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254")],
        *[(address, False) for address in ("0.0.0.0", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1")],
        *[(address, False) for address in ("240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1")],
        *[(address, False) for address in ("fec0::1", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::127.0.0.1")],
        *[(address, False) for address in ("2002:7f00:1::", "64:ff9b::a00:1", "64:ff9b:1::7f00:1")],
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) == public


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"])
def test_the_address_of_a_metadata_server_is_refused_also_where_its_host_is_named(address: str) -> None:
    assert is_link_local(address)
    with pytest.raises(RefusedError, match="is not public"):
        AddressGuard([address]).resolve(address, 80)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "0", "0.0.0.0"],
)
def test_an_item_cannot_send_a_request_into_this_network(tmp_path: Path, run: Run, web: Loopback, host: str) -> None:
    put(web, {"red": tif(9_000)})
    item = item_of({"red": {"href": f"http://{host}:{urlsplit(web.url).port}/red.tif"}})
    (tmp_path / "item.geojson").write_text(json.dumps(item))
    arguments = ("fetch", "--item", tmp_path / "item.geojson", "--scene", tmp_path / "scene")
    run(*arguments, "--private-hosts", "elsewhere.org", "127.0.0.1:9").ends(
        8, "is not public; if this host is meant, name it in fetch.private_hosts"
    )
    assert web.received == []


def test_a_name_that_leads_into_this_network_gets_no_request(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    names = {"inner.example": "127.0.0.1"}
    monkeypatch.setattr("socket.getaddrinfo", lambda host, *rest, **more: real(names.get(host, host), *rest, **more))
    put(web, {"red": tif(9_000)})
    item = item_of({"red": {"href": f"http://inner.example:{urlsplit(web.url).port}/red.tif"}})
    (tmp_path / "item.geojson").write_text(json.dumps(item))
    arguments = ("fetch", "--item", tmp_path / "item.geojson", "--scene", tmp_path / "scene")
    run(*arguments).ends(8, "inner.example (127.0.0.1) is not public")
    assert web.received == []
    assert run(*arguments, "--private-hosts", "inner.example").code == 0


def test_the_host_of_the_catalog_and_the_hosts_of_the_config_are_allowed() -> None:
    search_settings = {"url": "http://stac.inner:8080/api"}
    label = {"asset": "scl", "classes": ["a"], "codes": [4]}
    named = {"private_hosts": ["minio.inner:9000"]}
    config = validate({"search": search_settings, "fetch": named, "label": label})[0]
    assert config["fetch"]["private_hosts"] == ("minio.inner:9000", "stac.inner")
    assert validate({"search": {"catalog": "sample"}, "label": label})[0]["fetch"]["private_hosts"] == ()


def raster_bytes(folder: Path, **raster: Any) -> bytes:
    noise = np.random.default_rng(1).integers(1, 9999, (400, 400), np.uint16)
    name = "whole.jp2" if raster.get("driver") == "JP2OpenJPEG" else "whole.tif"
    return write_raster(folder / name, noise, **raster).read_bytes()


@pytest.mark.parametrize(
    "raster",
    [
        {},
        {"driver": "GTiff", "tiled": True},
        {"driver": "GTiff", "compress": "none"},
        {"driver": "GTiff", "BIGTIFF": "YES", "ENDIANNESS": "BIG"},
        {"driver": "JP2OpenJPEG", "compress": None, "nodata": None, "QUALITY": "100", "REVERSIBLE": "YES"},
    ],
    ids=["COG", "tiles", "strips", "BigTIFF", "JPEG 2000"],
)
def test_a_body_that_is_cut_is_found_where_neither_length_nor_size_nor_checksum_are_known(
    fetch: Fetch, tmp_path: Path, web: Loopback, raster: dict[str, Any]
) -> None:
    body = raster_bytes(tmp_path, **raster)
    item = put(web, {"red": body}, metadata=False)
    assert fetch(item).code == 0
    fetch.scene.rename(tmp_path / "first")
    for cut in (len(body) - 20, len(body) // 2, 200):
        web.fail("/red.tif", times=2, cut=cut, drop=("Content-Length",))
        completed = fetch(item)
        assert completed.code == 4, (cut, completed.stderr)
        assert "(red.tif) is truncated: it has" in completed.stderr
        assert not fetch.scene.exists()
    assert fetch(item).code == 0, "the next run fetches it"
