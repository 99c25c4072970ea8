"""Assets from a server that speaks S3 by its own code, and checks who may read."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from processes import free_port, listens, running, skip_as_missing
from remote_assets import fetch, is_fetched, item_of, tif
from scenery import Completed, Run

from eopipe.errors import BadInputError
from eopipe.fetch.range_reader import open_range_reader

SERVER = Path(__file__).parents[2] / ".venv/servers/bin/moto_server"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REQUEST_PAYER", "AWS_SESSION_TOKEN", "AWS_PROFILE")


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server."""
    if not SERVER.is_file():
        skip_as_missing("moto_server is not installed")
    port = free_port()
    command = [str(SERVER), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, tmp_path_factory.mktemp("buckets") / "log", lambda: listens(port)):
        yield f"http://127.0.0.1:{port}"


ME = "AWS4-HMAC-SHA256 Credential=me/20200101/eu-central-1/s3/aws4_request, SignedHeaders=host, Signature=x"
PLACE = "<CreateBucketConfiguration><LocationConstraint>eu-central-1</LocationConstraint></CreateBucketConfiguration>"


def fetch_from_bucket(tmp_path: Path, run: Run, content: dict[str, bytes]) -> Completed:
    checksums = {n: {"file:checksum": f"1220{hashlib.sha256(body).hexdigest()}"} for n, body in content.items()}
    assets = {n: asset | {"href": f"s3://my.scenes/a b/{n}?#.tif"} for n, asset in checksums.items()}
    return fetch(run, tmp_path, item_of(assets))


def test_a_server_of_its_own_make_gives_assets_and_parts(
    tmp_path: Path, run: Run, buckets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", buckets)
    content = {"blue": tif(300_000, 1), "red": tif(9_000, 2)}
    login = {"Authorization": ME}
    requests.put(f"{buckets}/my.scenes", data=PLACE, headers=login, timeout=30).raise_for_status()
    for name, body in content.items():
        url = f"{buckets}/my.scenes/a%20b/{name}%3F%23.tif"
        requests.put(url, data=body, headers=login, timeout=30).raise_for_status()

    completed = fetch_from_bucket(tmp_path, run, content)
    assert completed.code == 3
    assert "the bucket my.scenes denies access" in completed.stderr

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    completed = fetch_from_bucket(tmp_path, run, content)
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    remote = open_range_reader("s3://my.scenes/a b/blue?#.tif", "blue")
    assert remote.read(100_000, 100_000) == content["blue"][100_000:200_000]
    with pytest.raises(BadInputError, match="no such file"):
        open_range_reader("s3://my.scenes/nothing.tif", "nothing")
