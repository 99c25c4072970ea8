"""Fetch writes whole, verified assets to disk, resumes interrupted downloads, and keeps finished assets."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import rasterio
from builders import noise
from loopback import Loopback
from remote_assets import named_hosts
from scenery import CRS, LEFT, STEP, TOP, Catalog, Fetch, Run

from eopipe.errors import BadInputError, IntegrityError, RefusedError, UpstreamError
from eopipe.fetch.assets import run_parallel
from eopipe.fetch.download import download_asset
from eopipe.fetch.retry import MAX_ATTEMPTS
from eopipe.publish import digest, verify
from eopipe.text_files import read_json, write_json

Item = dict[str, Any]
RED = "/catalog/s0/red.tif"


@pytest.fixture
def scene(catalog: Catalog) -> Item:
    """One scene whose red band takes several blocks of a download."""
    pixels = noise(400, 400)
    item = catalog.add("scene", {"blue": pixels[:64, :64], "red": pixels, "scl": pixels[:64, :64]})
    catalog.write()
    return item


@pytest.fixture
def red(catalog: Catalog, scene: Item) -> bytes:
    return (catalog.root / "s0" / "red.tif").read_bytes()


def local(item: Item) -> Item:
    """The item as search freezes it from a folder."""
    return item | {"assets": {n: a | {"href": f"s0/{n}.tif"} for n, a in item["assets"].items()}}


def remote(item: Item, web: Loopback) -> Item:
    """The item as search freezes it from a server."""
    return item | {"assets": {n: a | {"href": f"{web.url}/catalog/s0/{n}.tif"} for n, a in item["assets"].items()}}


def unsure(item: Item) -> Item:
    """The item of a catalog that states neither sizes nor checksums."""
    bare = {n: {k: v for k, v in a.items() if not k.startswith("file:")} for n, a in item["assets"].items()}
    return item | {"assets": bare}


@pytest.fixture
def item(scene: Item, web: Loopback) -> Item:
    return remote(scene, web)


@pytest.fixture
def bare(item: Item) -> Item:
    """The item of a server that states neither sizes nor checksums."""
    return unsure(item)


@pytest.fixture
def fetch(run: Run, tmp_path: Path, catalog: Catalog) -> Fetch:
    return Fetch(run, tmp_path, ("--catalog", catalog.root))


Comes = Callable[..., None]


@pytest.fixture
def comes(fetch: Fetch, red: bytes) -> Comes:
    """Fetch a scene, which then is whole and has the red band of the catalog."""

    def check(item: Item, *arguments: object) -> None:
        fetch(item, *arguments).ends(0)
        assert fetch.brought({"red": red})

    return check


def test_assets_come_whole_with_the_same_bytes_wherever_they_lie_and_the_item_points_to_them(
    item: Item, fetch: Fetch, comes: Comes, scene: Item, tmp_path: Path
) -> None:
    digests = set()
    for source in (local(scene), local(scene), item):
        comes(source)
        assets = read_json(fetch.scene / "scene.json")["assets"]
        assert {n: a["href"] for n, a in assets.items()} == {n: f"{n}.tif" for n in ("blue", "red", "scl")}
        assert sorted(p.name for p in tmp_path.iterdir()) == ["catalog", "item.geojson", "scene", "scene.run.json"]
        digests.add(digest(fetch.scene))
    assert len(digests) == 1


@pytest.mark.parametrize("evidence", ["checksum", "nothing", "no etag"])
@pytest.mark.usefixtures("impatient")
def test_assets_that_came_are_not_asked_for_again(
    fetch: Fetch, item: Item, bare: Item, red: bytes, catalog: Catalog, web: Loopback, evidence: str
) -> None:
    of_catalog = item if evidence == "checksum" else bare
    if evidence == "no etag":
        for name in of_catalog["assets"]:
            web.fail(f"/catalog/s0/{name}.tif", times=None, drop=("ETag",))
    (catalog.root / "s0" / "red.tif").unlink()
    (catalog.root / "s0" / "scl.tif").rename(catalog.root / "scl.tif")

    message = "could not be fetched: 127.0.0.1 answered 404"
    fetch(of_catalog).ends(3, f"scene scene, asset red {message}", f"scene scene, asset scl {message}")
    assert not fetch.scene.exists()
    (catalog.root / "s0" / "red.tif").write_bytes(red)
    (catalog.root / "scl.tif").rename(catalog.root / "s0" / "scl.tif")
    web.received.clear()
    assert fetch(of_catalog).code == 0
    assert sorted(request.path for request in web.received) == [RED, "/catalog/s0/scl.tif"]


def test_a_local_asset_that_is_missing_is_named(fetch: Fetch, scene: Item, catalog: Catalog) -> None:
    (catalog.root / "s0" / "red.tif").unlink()
    fetch(local(scene)).ends(3, "scene scene, asset red is missing: there is no s0/red.tif")
    assert not fetch.scene.exists()


def test_a_local_asset_that_was_replaced_comes_new(fetch: Fetch, scene: Item, red: bytes, catalog: Catalog) -> None:
    (catalog.root / "s0" / "blue.tif").rename(fetch.folder / "away.tif")
    assert fetch(local(unsure(scene))).code == 3
    (catalog.root / "s0" / "red.tif").write_bytes(red[:2000] + red[2000:][::-1])
    (fetch.folder / "away.tif").rename(catalog.root / "s0" / "blue.tif")
    assert fetch(local(unsure(scene))).code == 0
    assert (fetch.scene / "red.tif").read_bytes() == red[:2000] + red[2000:][::-1]


def flipped(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 4]) + content[5001:]


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], flipped, lambda _: b""], ids=range(3))
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_damaged_asset_leaves_no_scene(
    fetch: Fetch, comes: Comes, item: Item, scene: Item, catalog: Catalog, web: Loopback, damage: Any, is_remote: bool
) -> None:
    file, source = catalog.root / "s0" / "red.tif", item if is_remote else local(scene)
    red = file.read_bytes()
    file.write_bytes(damage(red))
    fetch(source).ends(4, "scene scene, asset red (red.tif)")
    assert not fetch.scene.exists()
    assert len(web.requests(RED)) == (2 if is_remote else 0), "a damaged download is tried once more"
    file.write_bytes(red)
    comes(source)


def test_a_download_that_is_right_the_second_time_is_used(comes: Comes, item: Item, red: bytes, web: Loopback) -> None:
    web.fail(RED, body=flipped(red))
    comes(item)


OTHER_KINDS = {"1620": "sha3_256", "1440": "sha3_512", "c0e40240": "blake2b", "e0e40220": "blake2s"}
KINDS = {"1220": "sha256", "1340": "sha512", "1114": "sha1", "d50110": "md5"} | OTHER_KINDS


@pytest.mark.parametrize(("prefix", "name"), KINDS.items())
def test_checksums_of_many_kinds_are_checked_and_others_refused(tmp_path: Path, prefix: str, name: str) -> None:
    (tmp_path / "a.tif").write_bytes(b"II*\0 and so on")
    code = hashlib.new(name, b"II*\0 and so on").hexdigest()
    download_asset({"href": "a.tif", "file:checksum": prefix + code.upper()}, "a", tmp_path, tmp_path / "a.part")
    other_code = prefix + code[:-1] + ("0" if code[-1] != "0" else "1")
    for checksum, message in ((other_code, f"{name} checksum"), ("abcdef", "unknown kind")):
        with pytest.raises(IntegrityError, match=message):
            download_asset({"href": "a.tif", "file:checksum": checksum}, "a", tmp_path, tmp_path / "b.part")


@pytest.mark.usefixtures("impatient")
def test_a_server_that_always_fails_is_code_5_and_resumed(
    fetch: Fetch, comes: Comes, item: Item, web: Loopback
) -> None:
    web.fail(RED, cut=200_000)
    web.fail(RED, times=None, status=503)
    fetch(item).ends(5, "127.0.0.1 did not deliver scene scene, asset red (last: status 503); try again later")
    assert not fetch.scene.exists()
    assert len(web.requests(RED)) == MAX_ATTEMPTS
    web.reset()
    comes(item)
    assert [request.path for request in web.received] == [RED], "only what is missing is asked for"
    assert "Range" in web.received[0].headers


@contextmanager
def fetching(folder: Path, item: Item) -> Iterator[subprocess.Popen[bytes]]:
    """Run fetch in another process, until a part of the red band is on disk."""
    (folder / "item.geojson").write_text(json.dumps(item))
    arguments = ["fetch", "--item", folder / "item.geojson", "--scene", folder / "scene", *named_hosts(item)]
    process = subprocess.Popen([sys.executable, "-m", "eopipe", *arguments], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not any(p.stat().st_size for p in folder.glob(".scene.parts/red-*.part")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def test_kill_9_in_the_middle_loses_nothing_on_disk(fetch: Fetch, comes: Comes, bare: Item, web: Loopback) -> None:
    web.fail(RED, times=None, drip=0.2)
    for _ in range(2):
        with fetching(fetch.folder, bare):
            pass
        assert not fetch.scene.exists()
    # On a loaded machine less than a block of the server may have arrived.
    [received] = [path.stat().st_size for path in fetch.folder.glob(".scene.parts/red-*.part")]
    web.reset()
    comes(bare)
    assert received > 0
    assert web.requests(RED)[0].headers["Range"] == f"bytes={received}-"
    assert not list(fetch.folder.glob(".scene*"))


def test_two_runs_that_fetch_a_scene_at_once_both_end_right(
    fetch: Fetch, bare: Item, red: bytes, web: Loopback
) -> None:
    """F17: each asset is fetched once or twice, and what comes is never mixed."""
    web.fail(RED, times=1, drip=0.02)
    with fetching(fetch.folder, bare) as first:
        fetch(bare).ends(0)
        assert first.wait() == 0
    assert fetch.brought({"red": red})
    assert len(web.requests(RED)) == 2
    assert not list(fetch.folder.glob(".scene*"))


def test_a_fetch_that_waits_too_long_for_another_is_sent_away(fetch: Fetch, bare: Item, web: Loopback) -> None:
    web.fail(RED, times=None, drip=0.2)
    with fetching(fetch.folder, bare) as first:
        fetch(bare, "--deadline", 0.1).ends(2, "another eopipe is still fetching")
        assert first.poll() is None


@pytest.mark.usefixtures("impatient")
def test_a_line_that_breaks_often_but_moves_on_is_not_given_up(
    comes: Comes, bare: Item, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.fetch.retry.MAX_ATTEMPTS", 2)
    monkeypatch.setattr("eopipe.fetch.http.CHUNK", 4096)
    web.fail(RED, times=8, cut=30_000)
    comes(bare)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_sends_less_is_asked_for_the_rest(comes: Comes, bare: Item, red: bytes, web: Loopback) -> None:
    tag = {"ETag": f'"{hashlib.sha256(red).hexdigest()[:16]}"'}
    web.fail(RED, cut=65_536)
    span = {"Content-Range": f"bytes 65536-66535/{len(red)}"}
    web.fail(RED, status=206, body=red[65_536:66_536], ignore_range=True, headers=tag | span)
    comes(bare)
    assert web.requests(RED)[2].headers["Range"] == "bytes=66536-"


@pytest.mark.usefixtures("impatient")
def test_the_rest_of_another_version_is_not_joined(comes: Comes, bare: Item, red: bytes, web: Loopback) -> None:
    web.fail(RED, cut=65_536)
    other = {"ETag": '"other"', "Content-Range": f"bytes 65536-{len(red) - 1}/{len(red)}"}
    web.fail(RED, status=206, body=bytes(len(red) - 65_536), ignore_range=True, headers=other)
    comes(bare)
    assert "Range" not in web.requests(RED)[2].headers


def test_another_address_of_one_name_is_fetched_anew(fetch: Fetch, bare: Item, catalog: Catalog, web: Loopback) -> None:
    bare["assets"]["scl"]["href"] = f"{web.url}/nothing.tif"
    assert fetch(bare).code == 3
    shutil.copy(catalog.root / "s0" / "blue.tif", catalog.root / "s0" / "other.tif")
    bare["assets"]["red"]["href"] = f"{web.url}/catalog/s0/other.tif"
    bare["assets"]["scl"]["href"] = f"{web.url}/catalog/s0/scl.tif"
    assert fetch(bare).code == 0
    assert digest(fetch.scene / "red.tif") == digest(catalog.root / "s0" / "blue.tif")


def test_scenes_can_share_a_folder_of_parts(fetch: Fetch, comes: Comes, item: Item, web: Loopback) -> None:
    parts = ("--parts", fetch.folder / "parts")
    web.fail("/catalog/s0/scl.tif", status=404)
    assert fetch(item, *parts).code == 3
    assert fetch(item | {"id": "other"}, *parts).code == 0
    web.received.clear()
    comes(item, *parts)
    assert [request.path for request in web.received] == ["/catalog/s0/scl.tif"]


@pytest.mark.usefixtures("impatient")
def test_a_server_that_fails_twice_is_asked_again(comes: Comes, item: Item, web: Loopback) -> None:
    web.fail(RED, times=2, status=503)
    web.fail("/catalog/s0/blue.tif", cut=0)
    comes(item)
    assert len(web.requests(RED)) == 3


@pytest.mark.usefixtures("impatient")
def test_a_silent_server_is_given_up(fetch: Fetch, item: Item, web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eopipe.fetch.retry.TIMEOUT", (10, 0.1))
    monkeypatch.setattr("eopipe.fetch.retry.MAX_ATTEMPTS", 2)
    web.fail(RED, times=None, pause=2)
    fetch(item).ends(5, "ReadTimeout")


def test_a_redirect_on_the_same_host_is_followed(comes: Comes, item: Item, web: Loopback) -> None:
    web.fail("/moved.tif", status=302, headers={"Location": RED}, body=b"")
    item["assets"]["red"]["href"] = f"{web.url}/moved.tif"
    comes(item)


@pytest.mark.parametrize("href", ["../../x", "file:///etc/passwd", "/vsicurl/http://127.0.0.1/x", "<VRTDataset>"])
def test_a_hostile_address_in_a_frozen_item_is_refused(fetch: Fetch, scene: Item, href: str) -> None:
    item = local(scene)
    item["assets"]["red"]["href"] = href
    fetch(item).ends(8, "asset red points to")


def test_strange_asset_names_stay_in_the_scene(fetch: Fetch, scene: Item, tmp_path: Path) -> None:
    item = local(scene)
    item["assets"] = {"../../evil": item["assets"]["red"], "a;touch x": item["assets"]["blue"]}
    before = {p.name for p in tmp_path.parent.iterdir()}
    assert fetch(item).code == 0
    assert {p.name for p in tmp_path.parent.iterdir()} == before
    assert len(list(fetch.scene.glob("*.tif"))) == 2


def test_what_is_no_item_and_a_path_without_its_catalog_are_told(fetch: Fetch, scene: Item, run: Run) -> None:
    no_item, no_asset = "is not a STAC Item", {"id": "x", "assets": {"red": 5}, "properties": {}, "geometry": None}
    values = (({}, no_item), ([], no_item), (no_asset, no_item), (local(scene), "name its catalog folder"))
    for value, message in values:
        write_json(fetch.folder / "item.geojson", value)
        run("fetch", "--item", fetch.folder / "item.geojson", "--scene", fetch.scene).ends(3, message)


LATER, MISSING, CUT = UpstreamError("later"), BadInputError("missing"), IntegrityError("cut")


@pytest.mark.parametrize(
    ("errors", "kind", "message"),
    [
        ((LATER, MISSING, RefusedError("unsafe"), CUT), RefusedError, "later; missing; unsafe; cut"),
        ((LATER, MISSING, CUT), IntegrityError, "cut"),
        ((MISSING, OSError(28, "full")), OSError, "full"),
    ],
)
def test_of_many_failures_the_gravest_gives_the_code_and_all_are_told(
    errors: tuple[Exception, ...], kind: type[Exception], message: str
) -> None:
    def fail(error: Exception) -> Path:
        raise error

    with pytest.raises(kind, match=message):
        run_parallel([lambda error=error: fail(error) for error in errors], 2, Event())


def grid_over(folder: Path, rows: slice, columns: slice) -> Path:
    """A grid on the pixels of the red band."""
    transform = [STEP, 0.0, LEFT + STEP * columns.start, 0.0, -STEP, TOP - STEP * rows.start]
    shape = [rows.stop - rows.start, columns.stop - columns.start]
    write_json(folder / "grid.json", {"crs": CRS, "shape": shape, "transform": transform})
    return folder / "grid.json"


@pytest.mark.parametrize("is_remote", [False, True])
def test_windows_bring_only_blocks_of_the_grid(fetch: Fetch, catalog: Catalog, web: Loopback, is_remote: bool) -> None:
    pixels = noise(1024, 1024)
    item = catalog.add("scene", {"red": pixels})
    grid = grid_over(fetch.folder, slice(520, 600), slice(150, 200))

    fetch(remote(item, web) if is_remote else local(item), "--grid", grid, "--windows").ends(0)
    asset = read_json(fetch.scene / "scene.json")["assets"]["red"]
    with rasterio.open(fetch.scene / "red.tif") as part:
        column, row = ~part.transform * (LEFT, TOP)
        top, left = -round(row), -round(column)
        assert 0 < top <= 520 <= 600 <= top + part.height
        assert 0 < left <= 150 <= 200 <= left + part.width
        np.testing.assert_array_equal(part.read(1), pixels[top : top + part.height, left : left + part.width])
        assert asset["proj:shape"] == [part.height, part.width]
        assert asset["proj:transform"] == list(part.transform)[:6]
    assert asset["file:size"] == (fetch.scene / "red.tif").stat().st_size
    assert asset["file:checksum"] == "1220" + digest(fetch.scene / "red.tif")
    assert asset["file:size"] < item["assets"]["red"]["file:size"] / 3
    assert web.sent < item["assets"]["red"]["file:size"] / 2
    verify(fetch.scene)


def test_windows_of_another_version_than_the_catalog_tells_are_refused(fetch: Fetch, item: Item) -> None:
    item["assets"]["red"]["file:size"] += 1
    grid = grid_over(fetch.folder, slice(0, 50), slice(0, 50))
    fetch(item, "--grid", grid, "--windows").ends(4, "asset red has", "it is another version")


def test_windows_that_came_are_not_asked_for_again_but_those_of_another_grid_are(
    fetch: Fetch, item: Item, catalog: Catalog, tmp_path: Path, web: Loopback
) -> None:
    (catalog.root / "s0" / "scl.tif").rename(tmp_path / "away.tif")
    arguments = ("--grid", grid_over(tmp_path, slice(0, 50), slice(0, 50)), "--windows")
    assert fetch(item, *arguments).code == 3
    (tmp_path / "away.tif").rename(catalog.root / "s0" / "scl.tif")
    web.received.clear()
    assert fetch(item, *arguments).code == 0
    assert {request.path for request in web.received} == {"/catalog/s0/scl.tif"}
    grid_over(tmp_path, slice(0, 60), slice(0, 60))
    web.received.clear()
    assert fetch(item, *arguments).code == 0
    assert len({request.path for request in web.received}) == 3


def test_windows_need_a_grid_and_without_them_a_grid_changes_nothing(fetch: Fetch, comes: Comes, scene: Item) -> None:
    fetch(local(scene), "--windows").ends(2, "--windows needs --grid")
    comes(local(scene), "--grid", grid_over(fetch.folder, slice(0, 50), slice(0, 50)))
