"""Who may see what: signatures and logins go to their own host only, and are written down nowhere."""

import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import Fault, Loopback, Request
from remote_assets import fetch, is_fetched, put, tif
from scenery import Run
from urllib3.connection import HTTPConnection

from eopipe.errors import RefusedError, UsageError
from eopipe.fetch.http import HttpClient, token_variable
from eopipe.fetch.retry import FetchSession, RetryBudget
from eopipe.fetch.signing import SignedUrl, check_planetary_computer


class Azure:
    """Blobs that open only with the newest of the signatures that were given out."""

    def __init__(self, web: Loopback) -> None:
        self.web, self.issued = web, 0
        self.valid_signatures: set[str] = set()
        web.random_fault = self.check

    def token(self, _: Request) -> dict[str, str]:
        self.issued += 1
        self.valid_signatures.add(f"{self.issued}SECRET")
        later = datetime.now(UTC) + timedelta(hours=1)
        return {"token": f"se=2030&sig={self.issued}SECRET", "msft:expiry": later.isoformat()}

    def check(self, request: Request) -> Fault:
        if request.path.startswith("/sas") or request.value.get("sig") in self.valid_signatures:
            return Fault()
        return Fault(status=403, body=b"<?xml version='1.0'?><Error>Signature not valid</Error>")


@pytest.fixture
def azure(web: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Azure]:
    from planetary_computer.sas import TOKEN_CACHE
    from planetary_computer.settings import Settings

    monkeypatch.setenv("PC_SDK_SAS_URL", f"{web.url}/sas")
    monkeypatch.setenv("PC_SDK_SUBSCRIPTION_KEY", "")
    TOKEN_CACHE.clear()
    Settings.get.cache_clear()
    service = Azure(web)
    web.routes["/sas/127/blobs"] = service.token
    (tmp_path / "blobs").mkdir()
    yield service
    TOKEN_CACHE.clear()
    Settings.get.cache_clear()


def blobs(web: Loopback, content: dict[str, bytes]) -> dict[str, Any]:
    item = put(web, {f"blobs/{name}": body for name, body in content.items()})
    return item | {"assets": {name.removeprefix("blobs/"): asset for name, asset in item["assets"].items()}}


SIGN = ("--sign", "planetary-computer")


def test_addresses_are_signed_when_they_are_asked_and_signatures_are_kept_nowhere(
    tmp_path: Path, run: Run, web: Loopback, azure: Azure, caplog: pytest.LogCaptureFixture
) -> None:
    content = {f"b{n}": tif(9_000, n) for n in range(6)}
    completed = fetch(run, tmp_path, blobs(web, content), *SIGN)
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    assert azure.issued == 1, "one signature opens a container"
    leaked_files = [p for p in tmp_path.rglob("*") if p.is_file() and b"SECRET" in p.read_bytes()]
    assert leaked_files == []
    assert "SECRET" not in completed.stderr + caplog.text


@pytest.mark.usefixtures("impatient")
def test_f06_a_signature_that_expires_in_the_middle_is_renewed_and_the_download_goes_on(
    tmp_path: Path, run: Run, web: Loopback, azure: Azure, caplog: pytest.LogCaptureFixture
) -> None:
    """F06: the body of the 403 is not in the file."""
    content = {"red": tif(200_000)}
    item = blobs(web, content)
    web.fail("/blobs/red.tif", cut=70_000)
    expired = threading.Event()

    def expire(request: Request) -> Fault:
        if "Range" in request.headers and not expired.is_set():
            expired.set()
            azure.valid_signatures.clear()
        return azure.check(request)

    web.random_fault = expire
    completed = fetch(run, tmp_path, item, *SIGN)
    assert completed.code == 0, completed.stderr
    assert is_fetched(tmp_path, content)
    assert azure.issued == 2
    assert [a.headers.get("Range") for a in web.requests("/blobs/red.tif")] == [None, "bytes=70000-", "bytes=70000-"]
    assert "the signature has expired" in caplog.text
    assert "SECRET" not in completed.stderr + caplog.text


def test_an_address_that_no_signature_opens_is_told_after_one_renewal(
    tmp_path: Path, run: Run, web: Loopback, azure: Azure
) -> None:
    item = blobs(web, {"red": tif(9_000)})
    web.fail("/blobs/red.tif", times=None, status=403, body=b"no")
    completed = fetch(run, tmp_path, item, *SIGN)
    assert completed.code == 3
    assert "127.0.0.1 answered 403" in completed.stderr
    assert azure.issued == 2
    assert "SECRET" not in completed.stderr + (tmp_path / "scene.run.json").read_text()


def test_a_server_of_signatures_that_fails_is_told_without_its_address(
    tmp_path: Path, run: Run, web: Loopback, azure: Azure
) -> None:
    web.fail("/sas/127/blobs", times=None, status=404)
    completed = fetch(run, tmp_path, blobs(web, {"red": tif(9_000)}), *SIGN)
    assert completed.code == 5
    assert "no signature for blobs: HTTPError" in completed.stderr


def test_a_server_of_signatures_that_never_answers_is_given_up(
    tmp_path: Path, run: Run, web: Loopback, azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eopipe.fetch.signing.TOKEN_TIMEOUT", 0.05)
    web.fail("/sas/127/blobs", times=None, pause=1.0)
    completed = fetch(run, tmp_path, blobs(web, {"red": tif(9_000)}), *SIGN)
    assert completed.code == 5
    assert "no signature for blobs: no response" in completed.stderr


@pytest.mark.parametrize(
    ("href", "sign", "signed"),
    [
        ("https://sentinel2l2a01.blob.core.windows.net/sentinel2-l2/a.tif", "auto", True),
        ("https://sentinel2l2a01.blob.core.windows.net/sentinel2-l2/a.tif", "none", False),
        ("https://ai4edatasetspublicassets.blob.core.windows.net/assets/a.png", "auto", False),
        ("https://sentinel-cogs.s3.us-west-2.amazonaws.com/a.tif", "auto", False),
        ("https://blob.core.windows.net.evil.org/c/a.tif", "auto", False),
        ("https://mirror.org/c/a.tif", "planetary-computer", True),
    ],
)
def test_who_is_signed_for(href: str, sign: Any, signed: bool) -> None:
    assert SignedUrl(href, FetchSession(sign=sign)).needs_signature == signed


def test_an_address_that_brings_its_own_signature_is_left_as_it_is() -> None:
    href = "https://a.blob.core.windows.net/c/a.tif?sig=mine"
    assert SignedUrl(href, FetchSession()).signed(RetryBudget("red", "a", FetchSession())) == href


def test_without_the_package_for_signing_the_command_that_installs_it_is_told(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "planetary_computer.sas", None)
    completed = fetch(run, tmp_path, put(web, {"red": tif(9_000)}), *SIGN)
    assert completed.code == 2
    assert "pip install 'eopipe[planetary]'" in completed.stderr


def netrc(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    (folder / "netrc").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("NETRC", str(folder / "netrc"))


def logins(web: Loopback) -> list[str | None]:
    return [request.headers.get("Authorization") for request in web.received]


def test_a_login_of_netrc_and_a_token_reach_their_own_host(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = put(web, {"red": tif(9_000)})
    netrc(tmp_path, monkeypatch, f"machine {urlsplit(web.url).netloc} login ada password pw")
    assert fetch(run, tmp_path, item).code == 0
    monkeypatch.setenv(token_variable(web.url), "T0KEN")
    assert fetch(run, tmp_path, item).code == 0
    assert logins(web) == ["Basic YWRhOnB3", "Bearer T0KEN"]
    leaked_files = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "netrc" and b"T0KEN" in p.read_bytes()]
    assert leaked_files == []


def test_the_default_entry_of_netrc_is_sent_to_nobody(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc(tmp_path, monkeypatch, "machine elsewhere.org login a password b", "default login ada password pw")
    assert fetch(run, tmp_path, put(web, {"red": tif(9_000)})).code == 0
    assert logins(web) == [None]


def test_a_login_is_not_sent_on_to_the_host_of_a_redirect(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7: of the item's two hosts, one sends on to the other; each sees its own login only."""
    netrc(tmp_path, monkeypatch, f"machine {urlsplit(web.url).netloc} login ada password pw")
    with Loopback(tmp_path, host="127.0.0.3") as other:
        content = {"blue": tif(9_000, 1), "red": tif(9_000, 2)}
        item = put(web, content)
        # The item names the other host too, so it may be inside this network.
        item["assets"]["blue"]["href"] = f"{other.url}/blue.tif"
        web.fail("/red.tif", times=None, status=307, headers={"Location": f"{other.url}/red.tif"}, body=b"")
        completed = fetch(run, tmp_path, item, "--workers", 1)
        assert completed.code == 0, completed.stderr
        assert is_fetched(tmp_path, content)
        assert logins(other) == [None, None]
    assert logins(web) == ["Basic YWRhOnB3"]


def test_a_login_goes_over_an_open_line_to_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    from eopipe.fetch.http import HostAuth

    monkeypatch.setenv("EOPIPE_TOKEN_DATA_ORG", "T0KEN")
    sent = {
        kind: HostAuth()(requests.Request("GET", f"{kind}://data.org/x").prepare()).headers.get("Authorization")
        for kind in ("http", "https")
    }
    assert sent == {"http": None, "https": "Bearer T0KEN"}


def test_a_netrc_that_cannot_be_read_is_told(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc(tmp_path, monkeypatch, "password before machine")
    completed = fetch(run, tmp_path, put(web, {"red": tif(9_000)}))
    assert completed.code == 2
    assert "cannot read the logins in" in completed.stderr
    assert UsageError.code == 2


def test_names_of_tokens_of_different_hosts_differ() -> None:
    origins = ("https://a-b.org", "https://a.b.org", "https://ab.org", "https://ab.org:8443", "https://ab.org:80")
    assert len({token_variable(origin) for origin in origins}) == 5
    assert token_variable("https://ab.org:443/x") == token_variable("https://ab.org")


def test_a_host_that_wants_a_login_is_told_with_where_to_put_it(tmp_path: Path, run: Run, web: Loopback) -> None:
    item = put(web, {"red": tif(9_000)})
    web.fail("/red.tif", times=None, status=401)
    completed = fetch(run, tmp_path, item)
    assert completed.code == 3
    machine = urlsplit(web.url).netloc
    assert f"set {token_variable(web.url)} or name {machine} in ~/.netrc" in completed.stderr


def test_a_redirect_from_a_safe_to_an_open_line_is_refused() -> None:
    from eopipe.fetch.addresses import AddressGuard

    with pytest.raises(RefusedError, match="which is not encrypted"):
        AddressGuard().check_redirect("https://a.org/x", "http://a.org/x", "red")


def test_items_stay_unsigned(tmp_path: Path, run: Run, web: Loopback, azure: Azure) -> None:
    assert fetch(run, tmp_path, blobs(web, {"red": tif(9_000)}), *SIGN).code == 0
    item = json.loads((tmp_path / "scene" / "scene.json").read_text())
    assert item["assets"]["red"]["href"] == "red.tif"


class ConnectionElsewhere(HTTPConnection):
    """A connection as another version of urllib3 could have it."""

    def _new_conn(self) -> socket.socket:
        return socket.create_connection((self.host, self.port))


@pytest.mark.parametrize("change", ["no _new_conn", "no _dns_host", "_dns_host is not connected to"])
def test_a_urllib3_whose_connections_cannot_be_checked_is_refused_in_one_sentence(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    HttpClient(FetchSession()).close()
    if change == "no _new_conn":
        monkeypatch.delattr(HTTPConnection, "_new_conn")
    elif change == "no _dns_host":
        monkeypatch.setattr(HTTPConnection, "host", "host.invalid")
        monkeypatch.setattr(HTTPConnection, "_dns_host", "", raising=False)
    else:
        monkeypatch.setattr(HTTPConnection, "_new_conn", ConnectionElsewhere._new_conn)
    sentence = r"^urllib3 [\d.]+ does not let eopipe check the address of a connection; install urllib3>=2\.3,<3$"
    with pytest.raises(UsageError, match=sentence):
        HttpClient(FetchSession())


@pytest.mark.parametrize("name", ["TOKEN_CACHE", "get_token"])
def test_a_planetary_computer_without_its_tokens_is_refused_in_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_planetary_computer("asset red of scene a").TOKEN_CACHE == {}
    monkeypatch.delattr(f"planetary_computer.sas.{name}")
    sentence = r"^asset red of scene a needs a signed URL, but this version .*; install planetary-computer>=1\.0,<2$"
    with pytest.raises(UsageError, match=sentence):
        check_planetary_computer("asset red of scene a")
