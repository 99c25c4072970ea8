"""The part Fetch of the fault table, row by row: what arrives is right, or the exit code says why it did not."""

import gzip
import io
import json
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from loopback import Fault, Loopback, Request
from patience import PATIENCE
from remote_assets import item_of, loopback_session, named_hosts, put, tif
from scenery import Fetch

from eopipe.errors import PreemptedError, UpstreamError
from eopipe.fetch.assets import run_parallel
from eopipe.fetch.download import download_asset
from eopipe.fetch.retry import MAX_RETRY_AFTER, PER_HOST, retry_after

MIX = [Fault(status=503, body=b"busy")] * 20 + [Fault(reset=True)] * 5
MIX += [Fault(cut=9_000)] * 5 + [Fault(pause=60.0)] * 2


@pytest.fixture
def item(web: Loopback) -> dict[str, Any]:
    """A scene of one small asset, whose size and checksum are stated."""
    return put(web, {"red": tif(9_000)})


@pytest.mark.exhaustive
@pytest.mark.usefixtures("impatient")
def test_f01_200_assets_come_right_from_a_server_that_fails_a_third_of_requests(
    fetch: Fetch, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F01: 20 % 503, 5 % reset, 5 % short, 2 % stalled."""
    # Longer than a busy machine needs for an answer, shorter than a stall.
    monkeypatch.setattr("eopipe.fetch.retry.TIMEOUT", (5.0, 5.0))
    dice = random.Random(1)
    faults = [planned for _ in range(6) for planned in dice.sample([*MIX, *[Fault()] * 68], 100)]
    lock, without_fault = threading.Lock(), Fault()
    planned: list[Fault] = []

    def fault(_: Request) -> Fault:
        with lock:
            drawn = faults.pop() if faults else without_fault
            planned.extend([drawn] if drawn != without_fault else [])
            return drawn

    web.random_fault = fault
    content = {f"b{n:03}": tif(18_000, n) for n in range(200)}
    fetch(put(web, content), "--workers", 16).ends(0)
    assert fetch.brought(content)
    assert len(list(fetch.scene.glob("*.tif"))) == 200
    ideal = sum(map(len, content.values()))
    print(f"requests {len(web.received) / 200:.2f} x, bytes {web.sent / ideal:.2f} x")
    assert 0.2 * 200 < len(planned) <= 0.8 * 200
    assert 200 < len(web.received) <= 200 + len(planned), "a fault costs no more than one request"
    assert web.sent <= 1.3 * ideal


@pytest.mark.usefixtures("impatient")
def test_f02_a_short_body_is_resumed_from_its_offset(fetch: Fetch, web: Loopback) -> None:
    content = {"red": tif(200_000)}
    web.fail("/red.tif", cut=70_000)
    assert fetch(put(web, content)).code == 0
    assert fetch.brought(content)
    assert [request.headers.get("Range") for request in web.received] == [None, "bytes=70000-"]
    assert web.received[1].headers["If-Range"].startswith('"')
    assert web.sent == 200_000, "no byte comes twice"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("first", "then", "metadata", "code"),
    [
        ({"drop": ("Content-Length",)}, {}, True, 0),
        ({"drop": ("Content-Length",)}, {"cut": 70_000, "drop": ("Content-Length",)}, True, 4),
        ({}, {"ignore_range": True}, True, 0),
        ({}, {"ignore_range": True}, False, 0),
    ],
)
def test_f03_f04_a_cut_body_without_a_length_is_found_by_its_size_and_without_ranges_it_is_begun_anew(
    fetch: Fetch, web: Loopback, first: dict[str, Any], then: dict[str, Any], metadata: bool, code: int
) -> None:
    content = {"red": tif(200_000)}
    web.fail("/red.tif", cut=70_000, **first)
    web.fail("/red.tif", times=None, **then)
    fetch(put(web, content, metadata=metadata)).ends(code)
    assert code or fetch.brought(content)


@pytest.mark.usefixtures("impatient")
def test_f05_two_versions_of_one_size_are_never_joined(fetch: Fetch, web: Loopback) -> None:
    old, new = tif(200_000, 1), tif(200_000, 2)
    item = put(web, {"red": old}, metadata=False)
    web.fail("/red.tif", cut=70_000)
    web.fail("/red.tif", times=None, status=503)
    assert fetch(item).code == 5
    web.reset()
    (web.folder / "red.tif").write_bytes(new)
    assert fetch(item).code == 0
    assert fetch.brought({"red": new})
    assert web.received[0].headers["Range"] == "bytes=70000-"


def test_f07_a_wrong_checksum_is_fetched_once_more_then_kept_apart(fetch: Fetch, tmp_path: Path, web: Loopback) -> None:
    item = put(web, {"red": tif(9_000, 1)})
    (web.folder / "red.tif").write_bytes(tif(9_000, 2))
    fetch(item).ends(4, "asset red (red.tif) does not match its sha256 checksum")
    assert len(web.received) == 2
    assert not fetch.scene.exists()
    assert [p.read_bytes() for p in tmp_path.glob(".scene.parts/red-*.quarantine")] == [tif(9_000, 2)]


@pytest.mark.parametrize("metadata", [True, False])
def test_f08_a_page_instead_of_a_raster_is_named_then_it_goes_on(fetch: Fetch, web: Loopback, metadata: bool) -> None:
    item = put(web, {"red": tif(9_000)}, metadata=metadata)
    web.fail("/red.tif", times=None, body=b"\n <!DOCTYPE html><html>please log in</html>")
    fetch(item).ends(3, "asset red is not a GeoTIFF or JPEG 2000 file: it looks like an HTML or XML page")
    assert not fetch.scene.exists()
    web.reset()
    fetch(item).ends(0)


@pytest.mark.usefixtures("impatient")
def test_f09_a_trickle_is_cut_off_and_given_up(fetch: Fetch, web: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    item = put(web, {"red": tif(900_000)})
    monkeypatch.setattr("eopipe.fetch.retry.GRACE", 0.0)
    monkeypatch.setattr("eopipe.fetch.retry.MIN_RATE", 1e12)
    monkeypatch.setattr("eopipe.fetch.retry.MAX_ATTEMPTS", 3)
    fetch(item).ends(5, "bytes per second")
    assert len(web.received) == 3


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("http://127.0.0.1:{port}/x", "asset red: 127.0.0.1 redirects to"),
        ("http://169.254.169.254/", "asset red: 127.0.0.1 redirects to"),
        ("http://2130706433:{port}/x", "asset red: 127.0.0.1 redirects to"),
        ("http://127.0.0.2:{port}/x", "asset red: 127.0.0.1 redirects to http://127.0.0.2, which is not public"),
        ("file:///etc/passwd", "which is not a web address"),
    ],
)
def test_f10_a_redirect_into_this_network_is_not_followed(
    fetch: Fetch, tmp_path: Path, web: Loopback, item: dict[str, Any], location: str, named: str
) -> None:
    with Loopback(tmp_path) as inner:
        port = inner.server.server_address[1]
        web.fail("/red.tif", times=None, status=302, headers={"Location": location.format(port=port)})
        fetch(item).ends(8, named)
        assert inner.received == []


def test_f10_a_name_that_means_another_address_a_moment_later_is_not_connected_to(
    fetch: Fetch, tmp_path: Path, web: Loopback, item: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public address when it is checked, an inner one when it is connected to."""
    real, queries = socket.getaddrinfo, []

    def rebinding(host: str, port: int, *arguments: Any, **more: Any) -> Any:
        if host != "rebind.example":
            return real(host, port, *arguments, **more)
        queries.append(host)
        return real("8.8.8.8" if len(queries) == 1 else "127.0.0.1", port, *arguments, **more)

    monkeypatch.setattr("socket.getaddrinfo", rebinding)
    with Loopback(tmp_path) as inner:
        port = inner.server.server_address[1]
        web.fail("/red.tif", times=None, status=302, headers={"Location": f"http://rebind.example:{port}/red.tif"})
        fetch(item).ends(8)
        assert inner.received == []
    assert len(queries) == 2


@pytest.mark.parametrize("href", ["http://169.254.169.254/latest/meta-data", "http://[fe80::1]/x", "http://a b/"])
def test_f11_an_item_cannot_name_the_metadata_server_of_a_cloud(fetch: Fetch, href: str) -> None:
    fetch(item_of({"red": {"href": href}})).ends(8)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("impatient")
def test_f12_30_times_kill_9_costs_no_more_than_what_was_on_the_line(fetch: Fetch, web: Loopback) -> None:
    content = {"blue": tif(250_000, 1), "red": tif(400_000, 2), "swir": tif(100_000, 3)}
    (fetch.folder / "item.geojson").write_text(json.dumps(item := put(web, content)))
    web.random_fault = lambda _: Fault(drip=0.08)
    target = ("--scene", fetch.folder / "scene", "--workers", 2)
    arguments = ("fetch", "--item", fetch.folder / "item.geojson", *target, *named_hosts(item))
    dice, killed, whole, children = random.Random(3), 0, 1, [Child(*arguments) for _ in range(3)]
    for _ in range(30):
        child = children.pop(0)
        children.append(Child(*arguments))
        child.go()
        time.sleep(dice.uniform(0.0, 0.15))
        killed += child.kill()
        if fetch.scene.exists():
            assert fetch.brought(content)
            shutil.rmtree(fetch.scene)
            whole += 1
    for child in children:
        child.kill()
    assert killed >= 15, "in the middle"
    # A piece of the server is on the line of each worker, and one more before the server notices.
    assert web.sent <= whole * sum(map(len, content.values())) + killed * 4 * 16_384
    web.reset()
    assert fetch(item).code == 0
    assert fetch.brought(content)
    assert sorted(p.name for p in fetch.folder.glob(".*")) == []


# What a shell starts in the background ignores SIGINT, and so would its children.
CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import eopipe.cli, eopipe.provenance.record, eopipe.fetch.assets, eopipe.fetch.http
print("ready", flush=True)
if sys.stdin.readline():
    sys.exit(eopipe.cli.main(sys.argv[1:]))
"""


class Child:
    """An eopipe in another process, which has finished its imports and waits for the signal to start."""

    def __init__(self, *arguments: object) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, "-c", CHILD, *map(str, arguments)], **pipes)

    def go(self) -> None:
        """Start it."""
        assert self.process.stdout.readline() == b"ready\n"
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def kill(self) -> bool:
        """Kill it with signal 9 and return whether it was still running."""
        is_alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()
        return is_alive


@pytest.mark.parametrize(
    ("options", "metadata"), [("size=300k", True), ("size=300k", False), ("size=9m,nr_inodes=9", True)]
)
def test_f13_a_full_disk_ends_with_code_6_and_a_rerun_finishes(
    fetch: Fetch, web: Loopback, small_disk: Callable[[str], Path], options: str, metadata: bool
) -> None:
    disk, small = small_disk(options), "inodes" in options
    content = {f"b{n}": tif(9_000 if small else 120_000, n) for n in range(4)}
    arguments = ("--parts", disk / "parts", "--workers", 1)
    completed = fetch(put(web, content, metadata=metadata), *arguments).ends(6, "MB", "free")
    # Where sizes are known, nothing is begun.
    assert ("needs 0.5 MB more" in completed.stderr) == (metadata and not small)
    assert not fetch.scene.exists()
    subprocess.run(["mount", "-o", "remount,size=9m,nr_inodes=99", disk], check=True)
    assert fetch(put(web, content, metadata=metadata), *arguments).code == 0
    assert fetch.brought(content)


def archive_of(kind: str) -> bytes:
    """An archive whose entries lead out of the folder into which it is unpacked."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("../../evil", "x")
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "gzip" else "w") as archive:
        for name, of_kind in (("../evil", tarfile.REGTYPE), ("/abs", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = of_kind, "/etc"
            archive.addfile(entry)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar", "gzip"])
@pytest.mark.parametrize("is_remote", [True, False])
def test_f14_an_archive_is_refused_and_nothing_of_it_is_unpacked(
    fetch: Fetch, tmp_path: Path, web: Loopback, kind: str, is_remote: bool
) -> None:
    item = put(web, {"red": archive_of(kind)}, metadata=False)
    if not is_remote:
        item["assets"]["red"]["href"] = "red.tif"
    before = {p.name for p in tmp_path.parent.iterdir()}
    fetch(item, "--catalog", tmp_path).ends(8, f"asset red is a {kind} archive")
    assert {p.name for p in tmp_path.parent.iterdir()} == before
    assert not fetch.scene.exists()


def test_f15_a_compressed_body_is_not_unpacked(fetch: Fetch, web: Loopback) -> None:
    item = put(web, {"red": gzip.compress(bytes(64 << 20))}, metadata=False)
    web.fail("/red.tif", times=None, headers={"Content-Encoding": "gzip"})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fetch(item).ends(8, "arrives compressed as gzip")
    assert all(request.headers["Accept-Encoding"] == "identity" for request in web.received)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kB"


def test_f15_a_body_ends_at_the_size_that_the_catalog_says_or_is_refused_without_one(
    fetch: Fetch, tmp_path: Path, web: Loopback, item: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (web.folder / "red.tif").write_bytes(tif(4_000_000))
    fetch(item).ends(4)
    assert all(p.stat().st_size < 200_000 for p in tmp_path.glob(".scene.parts/*"))
    monkeypatch.setattr("eopipe.fetch.download.MAX_BYTES", 100_000)
    fetch(put(web, {"red": tif(1_000_000)}, metadata=False)).ends(8, "does not end after 100000 bytes")


def test_f16_three_of_200_that_are_missing_are_listed_and_alone_asked_for_again(fetch: Fetch, web: Loopback) -> None:
    content = {f"b{n:03}": tif(600, n) for n in range(200)}
    item = put(web, content)
    missing = [f"b{n:03}" for n in (7, 70, 170)]
    for name in missing:
        web.fail(f"/{name}.tif", status=404)
    completed = fetch(item, "--workers", 8).ends(3)
    assert [name for name in content if f"asset {name} could not be fetched" in completed.stderr] == missing
    assert not fetch.scene.exists()
    web.received.clear()
    assert fetch(item, "--workers", 8).code == 0
    assert sorted(request.path for request in web.received) == [f"/{name}.tif" for name in missing]
    assert fetch.brought(content)


def test_f18_retry_after_is_obeyed_in_seconds_and_as_a_date_up_to_the_cap_and_then_given_up(
    tmp_path: Path, web: Loopback, item: dict[str, Any], impatient: list[float]
) -> None:
    def download() -> None:
        download_asset(item["assets"]["red"], "red", None, tmp_path / "red.part", loopback_session())

    for delay in (formatdate(time.time() + 30, usegmt=True), "30"):
        web.fail("/red.tif", status=429, headers={"Retry-After": delay})
        download()
        assert 25 < impatient.pop() <= 33
        (tmp_path / "red.part").unlink(missing_ok=True)
    assert retry_after("soon") == 0
    web.fail("/red.tif", times=None, status=503, headers={"Retry-After": "99999"})
    with pytest.raises(UpstreamError, match="last: status 503"):
        download()
    assert MAX_RETRY_AFTER <= max(impatient) <= 1.1 * MAX_RETRY_AFTER


def test_f18_what_a_server_wants_counts_against_the_deadline(fetch: Fetch, web: Loopback, item: dict[str, Any]) -> None:
    web.fail("/red.tif", times=None, status=503, headers={"Retry-After": "99999"})
    fetch(item, "--deadline", 60).ends(5, "the next attempt in 120 s would be after the deadline")
    assert len(web.received) == 1
    web.reset()
    web.random_fault = lambda _: Fault(drip=0.05)
    slow = fetch(put(web, {"red": tif(900_000)}), "--deadline", 0.3)
    slow.ends(5, "127.0.0.1 did not deliver scene scene, asset red (not within 0.3 s")


def test_no_more_connections_to_a_host_than_allowed(fetch: Fetch, web: Loopback) -> None:
    busy, maximum, lock = [0], [0], threading.Lock()
    answer = web.server.RequestHandlerClass.respond  # type: ignore[attr-defined]

    def counted(handler: Any, request: Any) -> None:
        with lock:
            busy[0] += 1
            maximum[0] = max(maximum[0], busy[0])
        answer(handler, request)
        with lock:
            busy[0] -= 1

    web.server.RequestHandlerClass.respond = counted  # type: ignore[attr-defined]
    web.random_fault = lambda _: Fault(pause=0.02)
    content = {f"b{n}": tif(600, n) for n in range(64)}
    assert fetch(put(web, content), "--workers", 32).code == 0
    # The next request can come in before this thread has counted the last one as finished.
    assert maximum[0] <= 2 * PER_HOST < 32


def test_an_interrupt_ends_downloads_at_once_and_keeps_what_came(fetch: Fetch, tmp_path: Path, web: Loopback) -> None:
    item = put(web, {"red": tif(900_000), "blue": tif(900)})
    (tmp_path / "item.geojson").write_text(json.dumps(item))
    # Slowly enough for a busy machine.
    web.fail("/red.tif", times=None, drip=1.0)
    web.fail("/blue.tif", times=None, pause=1.0)
    child = Child("fetch", "--item", tmp_path / "item.geojson", "--scene", tmp_path / "scene", *named_hosts(item))
    child.go()
    deadline = time.monotonic() + PATIENCE
    while not any(p.stat().st_size for p in tmp_path.glob(".scene.parts/red-*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.process.send_signal(signal.SIGINT)
    assert child.process.wait(PATIENCE) == 130
    child.kill()
    assert not fetch.scene.exists()
    assert any(p.stat().st_size for p in tmp_path.glob(".scene.parts/red-*.part"))


def test_a_download_that_is_stopped_says_so(tmp_path: Path, web: Loopback) -> None:
    terms = loopback_session()
    terms.stop.set()
    task = lambda: download_asset({"href": f"{web.url}/red.tif"}, "red", None, tmp_path / "red.part", terms)  # noqa: E731
    with pytest.raises(PreemptedError, match="the next run continues it"):
        run_parallel([task], 1, terms.stop)
    assert web.received == []
