"""Who may see what: signatures and logins go to their own host only, and are written down nowhere."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import Fault, Loopback, Request
from remote_assets import put, tif
from scenery import Fetch
from urllib3.connection import HTTPConnection

from eopipe.errors import RefusedError, UsageError
from eopipe.fetch.http import HttpClient, token_variable
from eopipe.fetch.retry import FetchSession, RetryBudget
from eopipe.fetch.signing import SignedUrl, check_planetary_computer

Netrc = Callable[..., int]


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
    fetch: Fetch, tmp_path: Path, web: Loopback, azure: Azure, caplog: pytest.LogCaptureFixture
) -> None:
    content = {f"b{n}": tif(9_000, n) for n in range(6)}
    completed = fetch(blobs(web, content), *SIGN).ends(0)
    assert fetch.brought(content)
    assert azure.issued == 1, "one signature opens a container"
    leaked_files = [p for p in tmp_path.rglob("*") if p.is_file() and b"SECRET" in p.read_bytes()]
    assert leaked_files == []
    assert "SECRET" not in completed.stderr + caplog.text


@pytest.mark.usefixtures("impatient")
def test_f06_a_signature_that_expires_in_the_middle_is_renewed_and_the_download_goes_on(
    fetch: Fetch, web: Loopback, azure: Azure, caplog: pytest.LogCaptureFixture
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
    completed = fetch(item, *SIGN).ends(0)
    assert fetch.brought(content)
    assert azure.issued == 2
    assert [a.headers.get("Range") for a in web.requests("/blobs/red.tif")] == [None, "bytes=70000-", "bytes=70000-"]
    assert "the signature has expired" in caplog.text
    assert "SECRET" not in completed.stderr + caplog.text


def test_an_address_that_no_signature_opens_is_told_after_one_renewal(
    fetch: Fetch, tmp_path: Path, web: Loopback, azure: Azure
) -> None:
    item = blobs(web, {"red": tif(9_000)})
    web.fail("/blobs/red.tif", times=None, status=403, body=b"no")
    completed = fetch(item, *SIGN).ends(3, "127.0.0.1 answered 403")
    assert azure.issued == 2
    assert "SECRET" not in completed.stderr + (tmp_path / "scene.run.json").read_text()


@pytest.mark.parametrize(
    ("fault", "named"), [({"status": 404}, "HTTPError"), ({"pause": 1.0}, "no response")], ids=["fails", "hangs"]
)
def test_a_server_of_signatures_that_gives_none_is_told_without_its_address(
    fetch: Fetch, web: Loopback, azure: Azure, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], named: str
) -> None:
    monkeypatch.setattr("eopipe.fetch.signing.TOKEN_TIMEOUT", 0.05 if fault.get("pause") else 10)
    web.fail("/sas/127/blobs", times=None, **fault)
    fetch(blobs(web, {"red": tif(9_000)}), *SIGN).ends(5, f"no signature for blobs: {named}")


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
    fetch: Fetch, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "planetary_computer.sas", None)
    fetch(put(web, {"red": tif(9_000)}), *SIGN).ends(2, "pip install 'eopipe[planetary]'")


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Netrc:
    """Write the logins of the user, a line each."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return lambda *lines: (tmp_path / "netrc").write_text("\n".join(lines) + "\n")


def logins(web: Loopback) -> list[str | None]:
    return [request.headers.get("Authorization") for request in web.received]


def test_a_login_of_netrc_and_a_token_reach_their_own_host(
    netrc: Netrc, fetch: Fetch, tmp_path: Path, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = put(web, {"red": tif(9_000)})
    netrc(f"machine {urlsplit(web.url).netloc} login ada password pw")
    assert fetch(item).code == 0
    monkeypatch.setenv(token_variable(web.url), "T0KEN")
    assert fetch(item).code == 0
    assert logins(web) == ["Basic YWRhOnB3", "Bearer T0KEN"]
    leaked_files = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "netrc" and b"T0KEN" in p.read_bytes()]
    assert leaked_files == []


@pytest.mark.parametrize(
    "lines",
    [
        ("machine elsewhere.org login a password b", "default login ada password pw"),
        # Of another port.
        ("machine 127.0.0.1 login ada password pw",),
    ],
    ids=["default", "port"],
)
def test_a_login_of_netrc_is_sent_only_to_the_host_and_port_that_it_names(
    fetch: Fetch, web: Loopback, netrc: Netrc, lines: tuple[str, ...]
) -> None:
    netrc(*lines)
    fetch(put(web, {"red": tif(9_000)})).ends(0)
    assert logins(web) == [None]


@pytest.mark.parametrize(("host", "login"), [("127.0.0.3", "Basic YWRhOnB3"), ("127.0.0.1", "Bearer T0KEN")])
def test_a_login_is_not_sent_on_to_the_host_of_a_redirect(
    fetch: Fetch, web: Loopback, netrc: Netrc, monkeypatch: pytest.MonkeyPatch, host: str, login: str
) -> None:
    """A7: of the item's two hosts, or ports of one, one sends on to the other; each sees its own login only."""
    if login.startswith("Basic"):
        netrc(f"machine {urlsplit(web.url).netloc} login ada password pw")
    else:
        monkeypatch.setenv(token_variable(web.url), "T0KEN")
        monkeypatch.setenv("EOPIPE_TOKEN_127_0_0_1", "OF THE USUAL PORT")
    with Loopback(web.folder, host=host) as other:
        content = {"blue": tif(9_000, 1), "red": tif(9_000, 2)}
        item = put(web, content)
        # The item names the other host too, so it may be inside this network.
        item["assets"]["blue"]["href"] = f"{other.url}/blue.tif"
        web.fail("/red.tif", times=None, status=307, headers={"Location": f"{other.url}/red.tif"}, body=b"")
        fetch(item, "--workers", 1).ends(0)
        assert fetch.brought(content)
        assert logins(other) == [None, None]
    assert logins(web) == [login]


def test_a_login_goes_over_an_open_line_to_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    from eopipe.fetch.http import HostAuth

    monkeypatch.setenv("EOPIPE_TOKEN_DATA_ORG", "T0KEN")
    sent = {
        kind: HostAuth()(requests.Request("GET", f"{kind}://data.org/x").prepare()).headers.get("Authorization")
        for kind in ("http", "https")
    }
    assert sent == {"http": None, "https": "Bearer T0KEN"}


def test_a_netrc_that_cannot_be_read_is_told(netrc: Netrc, fetch: Fetch, web: Loopback) -> None:
    netrc("password before machine")
    fetch(put(web, {"red": tif(9_000)})).ends(2, "cannot read the logins in")
    assert UsageError.code == 2


def test_names_of_tokens_of_different_hosts_differ() -> None:
    origins = ("https://a-b.org", "https://a.b.org", "https://ab.org", "https://ab.org:8443", "https://ab.org:80")
    assert len({token_variable(origin) for origin in origins}) == 5
    assert token_variable("https://ab.org:443/x") == token_variable("https://ab.org")


def test_a_host_that_wants_a_login_is_told_with_where_to_put_it(fetch: Fetch, web: Loopback) -> None:
    item = put(web, {"red": tif(9_000)})
    web.fail("/red.tif", times=None, status=401)
    completed = fetch(item).ends(3)
    machine = urlsplit(web.url).netloc
    assert f"set {token_variable(web.url)} or name {machine} in ~/.netrc" in completed.stderr


def test_a_redirect_from_a_safe_to_an_open_line_is_refused() -> None:
    from eopipe.fetch.addresses import AddressGuard

    with pytest.raises(RefusedError, match="which is not encrypted"):
        AddressGuard().check_redirect("https://a.org/x", "http://a.org/x", "red")


def test_items_stay_unsigned(fetch: Fetch, web: Loopback, azure: Azure) -> None:
    assert fetch(blobs(web, {"red": tif(9_000)}), *SIGN).code == 0
    item = json.loads((fetch.scene / "scene.json").read_text())
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
