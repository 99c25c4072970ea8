"""Buckets: the same checks as for web servers, with the usual AWS variables."""

from pathlib import Path
from typing import Any

import pytest
from loopback import Fault, Loopback, Request
from remote_assets import fetch, is_fetched, item_of, put, tif
from scenery import Run

from eopipe.errors import UpstreamError
from eopipe.fetch.range_reader import open_range_reader
from eopipe.fetch.retry import MAX_ATTEMPTS

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REQUEST_PAYER", "AWS_SESSION_TOKEN", "AWS_PROFILE")


pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def bucket(web: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loopback:
    """A public bucket named `scenes`, on the server that injects faults."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", web.url)
    (tmp_path / "scenes").mkdir()
    return web


def in_bucket(web: Loopback, content: dict[str, bytes], *, metadata: bool = True) -> dict[str, Any]:
    item = put(web, {f"scenes/{name}": body for name, body in content.items()}, metadata=metadata)
    return item | {"assets": {n[7:]: a | {"href": f"s3://{n}.tif"} for n, a in item["assets"].items()}}


def test_assets_of_a_bucket_come_whole(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    content = {"blue": tif(300_000, 1), "red": tif(9_000, 2)}
    completed = fetch(run, tmp_path, in_bucket(bucket, content))
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    assert all("Authorization" not in request.headers for request in bucket.received), "nobody is logged in"


def test_an_asset_of_a_bucket_goes_on_where_it_broke_off(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    content = {"red": tif(300_000)}
    bucket.fail("/scenes/red.tif", cut=200_000)
    bucket.fail("/scenes/red.tif", times=2, status=503, body=b"<Error><Code>SlowDown</Code></Error>")
    completed = fetch(run, tmp_path, in_bucket(bucket, content))
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    resumed = bucket.received[-1].headers
    assert int(resumed["Range"].removeprefix("bytes=").removesuffix("-")) > 100_000
    assert resumed["If-Match"].startswith('"')


def test_an_object_that_was_replaced_is_not_joined_with_the_old_one(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    old, new = tif(300_000, 1), tif(300_000, 2)
    item = in_bucket(bucket, {"red": old}, metadata=False)
    bucket.fail("/scenes/red.tif", cut=200_000)
    bucket.fail("/scenes/red.tif", times=None, status=503)
    assert fetch(run, tmp_path, item).code == 5
    bucket.reset()
    (tmp_path / "scenes" / "red.tif").write_bytes(new)
    assert fetch(run, tmp_path, item).code == 0
    assert is_fetched(tmp_path, {"red": new})


def test_a_bucket_that_fails_for_ever_ends_with_code_5(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    bucket.fail("/scenes/red.tif", times=None, status=503)
    completed = fetch(run, tmp_path, in_bucket(bucket, {"red": tif(9_000)}))
    assert completed.code == 5
    assert "scenes did not deliver scene scene, asset red (last: status 503)" in completed.stderr
    assert len(bucket.received) == MAX_ATTEMPTS


def test_an_object_that_is_missing_or_closed_is_told(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    item = in_bucket(bucket, {"blue": tif(9_000), "red": tif(9_000)})
    (tmp_path / "scenes" / "blue.tif").unlink()
    bucket.fail("/scenes/red.tif", times=None, status=403)
    completed = fetch(run, tmp_path, item)
    assert completed.code == 3
    assert "asset blue could not be fetched: there is no such file in the bucket scenes" in completed.stderr
    assert "asset red could not be fetched: the bucket scenes denies access; set AWS_ACCESS_KEY_ID" in completed.stderr


def test_a_bucket_of_another_region_is_told(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    bucket.fail("/scenes/red.tif", times=None, status=301)
    completed = fetch(run, tmp_path, in_bucket(bucket, {"red": tif(9_000)}))
    assert completed.code == 3
    assert "is in another region; set AWS_REGION" in completed.stderr


def test_a_server_without_ranges_begins_anew(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    content = {"red": tif(300_000)}
    bucket.fail("/scenes/red.tif", cut=200_000)
    bucket.fail("/scenes/red.tif", times=None, ignore_range=True)
    completed = fetch(run, tmp_path, in_bucket(bucket, content))
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)


def test_a_damaged_object_is_fetched_twice_then_told(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    item = in_bucket(bucket, {"red": tif(9_000, 1)})
    (tmp_path / "scenes" / "red.tif").write_bytes(tif(9_000, 2))
    completed = fetch(run, tmp_path, item)
    assert completed.code == 4
    assert len(bucket.received) == 2


def test_an_address_without_a_key_is_told(tmp_path: Path, run: Run, bucket: Loopback) -> None:
    completed = fetch(run, tmp_path, item_of({"red": {"href": "s3://scenes"}}))
    assert completed.code == 3
    assert "points to the bucket scenes, not to a file in it" in completed.stderr


def test_who_pays_and_who_asks_is_told_to_the_bucket_and_written_nowhere(
    tmp_path: Path, run: Run, bucket: Loopback, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAME")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "T0KEN")
    monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")
    item = in_bucket(bucket, {"red": tif(9_000)})
    bucket.fail("/scenes/red.tif", status=400, body=b"<Error>T0KEN</Error>")
    completed = fetch(run, tmp_path, item)
    assert completed.code == 3
    assert "the bucket scenes answered 400" in completed.stderr
    assert fetch(run, tmp_path, item).code == 0
    assert bucket.received[0].headers["X-Amz-Request-Payer"] == "requester"
    assert "AKIAME" in bucket.received[0].headers["Authorization"]
    written = (
        b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()) + (completed.stderr + caplog.text).encode()
    )
    assert not {secret for secret in (b"AKIAME", b"SECRET", b"T0KEN") if secret in written}


def test_parts_of_an_object_are_of_one_version(bucket: Loopback, tmp_path: Path) -> None:
    content = tif(300_000, 1)
    in_bucket(bucket, {"red": content})
    remote = open_range_reader("s3://scenes/red.tif", "red")
    assert remote.size == 300_000
    assert remote.version.startswith('"')
    assert remote.read(250_000, 99_000) == content[250_000:]
    (tmp_path / "scenes" / "red.tif").write_bytes(tif(300_000, 2))
    with pytest.raises(UpstreamError, match="changed while ranges of it were read"):
        remote.read(250_000, 10)


@pytest.mark.exhaustive
def test_what_asks_again_counts_against_a_bucket_too(
    tmp_path: Path, run: Run, bucket: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.fetch.http.TIMEOUT", (5.0, 5.0))
    stalled: list[Request] = []

    def stall_once(request: Request) -> Fault:
        stalled.append(request)
        return Fault(pause=60.0 if len(stalled) == 1 else 0.0)

    bucket.random_fault = stall_once
    content = {"red": tif(9_000)}
    completed = fetch(run, tmp_path, in_bucket(bucket, content))
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    assert len(stalled) == 2
