"""Parts of a remote file are the right bytes of one version, whatever the server does."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Loopback
from remote_assets import loopback_session, tif

from eopipe.errors import BadInputError, RefusedError, UpstreamError
from eopipe.fetch.range_reader import FIRST_READ, open_range_reader

CONTENT = tif(200_000)

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def remote_url(web: Loopback) -> str:
    (web.folder / "red.tif").write_bytes(CONTENT)
    return f"{web.url}/red.tif"


@given(st.data())
@settings(max_examples=20)
def test_every_part_is_the_right_one(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("web")
    size = data.draw(st.integers(1, 3 * FIRST_READ))
    (folder / "red.tif").write_bytes(CONTENT[:size])
    with Loopback(folder) as web:
        for remote in (
            open_range_reader(f"{web.url}/red.tif", "red", loopback_session()),
            open_range_reader("red.tif", "red", None, folder),
        ):
            assert remote.size == size
            for _ in range(5):
                start, length = data.draw(st.integers(0, size + 9)), data.draw(st.integers(0, size + 9))
                assert remote.read(start, length) == CONTENT[:size][start : start + length]


def test_the_beginning_is_asked_for_once(web: Loopback, remote_url: str) -> None:
    remote = open_range_reader(remote_url, "red", loopback_session())
    assert (
        remote.read(0, 16) + remote.read(FIRST_READ - 100, 100) == CONTENT[:16] + CONTENT[FIRST_READ - 100 : FIRST_READ]
    )
    assert len(web.received) == 1
    assert remote.version.startswith('"')


def test_a_part_that_breaks_off_is_completed_from_there(web: Loopback, remote_url: str) -> None:
    remote = open_range_reader(remote_url, "red", loopback_session())
    web.fail("/red.tif", cut=30_000)
    web.fail("/red.tif", status=503)
    web.fail("/red.tif", reset=True)
    assert remote.read(100_000, 60_000) == CONTENT[100_000:160_000]
    assert web.received[-1].headers["Range"] == "bytes=130000-159999"
    assert all(request.headers["If-Match"] == remote.version for request in web.received[1:])


@pytest.mark.parametrize("tag", [True, False])
def test_parts_of_two_versions_are_never_joined(web: Loopback, remote_url: str, tag: bool) -> None:
    if not tag:
        web.fail("/red.tif", drop=("ETag",), headers={"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
    remote = open_range_reader(remote_url, "red", loopback_session())
    (web.folder / "red.tif").write_bytes(CONTENT[::-1])
    if not tag:
        web.fail("/red.tif", drop=("ETag",), headers={"Last-Modified": "Tue, 02 Jan 2024 00:00:00 GMT"})
    with pytest.raises(UpstreamError, match="the file changed while ranges of it were read"):
        remote.read(100_000, 10)


def test_a_server_that_ignores_if_match_does_not_join_two_versions(web: Loopback, remote_url: str) -> None:
    remote = open_range_reader(remote_url, "red", loopback_session())
    web.fail("/red.tif", status=206, headers={"Content-Range": "bytes 100000-100009/200000", "ETag": '"new"'})
    with pytest.raises(UpstreamError, match="changed"):
        remote.read(100_000, 10)


@pytest.mark.parametrize("content_range", ["bytes 0-9/200000", "nonsense"])
def test_another_part_than_the_one_asked_for_is_not_taken(web: Loopback, remote_url: str, content_range: str) -> None:
    remote = open_range_reader(remote_url, "red", loopback_session())
    web.fail("/red.tif", headers={"Content-Range": content_range})
    with pytest.raises(UpstreamError):
        remote.read(100_000, 10)


def test_a_server_without_ranges_is_told(web: Loopback, remote_url: str) -> None:
    web.fail("/red.tif", ignore_range=True, drop=("Content-Length",))
    with pytest.raises(BadInputError, match=r"red cannot be read in ranges: 127.0.0.1 serves whole files only"):
        open_range_reader(remote_url, "red", loopback_session())


def test_a_server_that_fails_for_ever_is_given_up(web: Loopback, remote_url: str) -> None:
    web.fail("/red.tif", times=None, status=503)
    with pytest.raises(UpstreamError, match=r"127.0.0.1 did not deliver red"):
        open_range_reader(remote_url, "red", loopback_session())


def test_the_deadline_holds_for_all_parts_together(web: Loopback, remote_url: str) -> None:
    remote = open_range_reader(remote_url, "red", loopback_session(deadline=1e-9 + 60))
    remote.deadline = 1.0  # type: ignore[attr-defined]
    with pytest.raises(UpstreamError, match="not within 60 s"):
        remote.read(100_000, 10)


@pytest.mark.parametrize("href", ["file:///etc/passwd", "/vsicurl/http://x", "../x"])
def test_a_hostile_address_is_refused(tmp_path: Path, href: str) -> None:
    with pytest.raises(RefusedError):
        open_range_reader(href, "red", None, tmp_path)


def test_a_file_that_is_missing_is_told(tmp_path: Path, remote_url: str) -> None:
    with pytest.raises(BadInputError, match=r"red is missing: there is no none.tif"):
        open_range_reader("none.tif", "red", None, tmp_path)
    with pytest.raises(BadInputError, match=r"red could not be fetched: 127.0.0.1 answered 404"):
        open_range_reader(remote_url.replace("red", "none"), "red", loopback_session())
