"""Which addresses may be requested, and connections that go only there and end at their deadline.

Internals of other packages that this module uses; `check_urllib3` looks for them before the first request:

| what | why | versions |
|---|---|---|
| `HTTPConnection._new_conn` of urllib3 is overridden | to check addresses before a connection | 2.3 to 2.x |
| `HTTPConnection._dns_host` is set meanwhile | to connect to what was checked (DNS rebinding) | 2.3 to 2.x |
"""

import ipaddress
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError
from urllib3.poolmanager import ProxyManager
from urllib3.response import HTTPResponse

from eopipe.errors import RefusedError, UsageError

PORTS = {"http": 80, "https": 443}
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 networks whose last 32 bits are an IPv4 address: NAT64 (RFC 6052, RFC 8215) and the deprecated compatible ones.
WITH_IPV4 = [ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")]


def check_urllib3() -> None:
    """Raise UsageError where urllib3 lacks the internals in the table above."""
    probe, connect = HTTPConnection("host.invalid"), getattr(HTTPConnection, "_new_conn", None)
    is_used = connect is not None and "_dns_host" in connect.__code__.co_names
    if not is_used or getattr(probe, "_dns_host", None) != "host.invalid":
        raise UsageError(
            f"urllib3 {version('urllib3')} does not let eopipe check the address of a connection; "
            "install urllib3>=2.3,<3"
        )


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of a web address, the port of its scheme where it states none."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0)


def is_public(text: str) -> bool:
    """Whether an IP address is on the internet, also where it only contains the one that is meant.

    >>> is_public("8.8.8.8"), is_public("10.0.0.1"), is_public("::ffff:127.0.0.1"), is_public("64:ff9b::7f00:1")
    (True, False, False, False)
    """
    return all(
        address.is_global and not address.is_multicast and not getattr(address, "is_site_local", False)
        for address in _readings(text)
    )


def is_link_local(text: str) -> bool:
    """Whether an IP address is link-local, as the addresses of clouds' metadata servers are."""
    return any(address.is_link_local for address in _readings(text))


def _readings(text: str) -> list[IPAddress]:
    """An address, and the IPv4 address that it contains."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped:
        return [address.ipv4_mapped]
    inner = [address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in WITH_IPV4):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *filter(None, inner)]


class AddressGuard:
    """Which addresses a session connects to: public ones, and addresses of hosts that the user named.

    A name is a host, for all of its ports, or `host:port`. Addresses of neighbours are refused to all.
    """

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        self.private_hosts = {name.lower() for name in private_hosts}

    def check_redirect(self, url: str, target: str, label: str) -> None:
        """Raise RefusedError for a redirect to a host inside this network, or to another kind of address."""
        source, destination = urlsplit(url), urlsplit(target)
        redirect = f"{label}: {source.hostname} redirects to {destination.scheme}://{destination.hostname or ''}"
        if destination.scheme not in PORTS or not destination.hostname:
            raise RefusedError(f"{redirect}, which is not a web address")
        if source.scheme == "https" and destination.scheme == "http":
            raise RefusedError(f"{redirect}, which is not encrypted")
        try:
            self.check(target)
        except RefusedError as error:
            raise RefusedError(f"{redirect}, which is not public; {_advice(*host_and_port(target))}") from error

    def check(self, url: str) -> None:
        """Raise RefusedError for the address of a host that may not be connected to."""
        # Behind a proxy, names need not resolve here; the proxy guards its own network.
        with suppress(OSError):
            self.resolve(*host_and_port(url))

    def resolve(self, host: str, port: int) -> list[str]:
        """The IP addresses of a host. Raises RefusedError for one that may not be connected to."""
        addresses = [str(row[4][0]) for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        is_named = not self.private_hosts.isdisjoint((host.lower(), f"{host.lower()}:{port}"))
        for address in addresses:
            if is_link_local(address) or not (is_named or is_public(address)):
                means = "" if host == address else f" ({address})"
                raise RefusedError(f"{host}{means} is not public; {_advice(host, port)}")
        return addresses

    def connect(self, connection: HTTPConnection, connect: Callable[[], socket.socket]) -> socket.socket:
        """Connect to an address that was checked, not to what the name resolves to a moment later."""
        name = connection._dns_host
        try:
            addresses = self.resolve(name, connection.port)
        except (socket.gaierror, UnicodeError):
            return connect()
        try:
            for address in addresses[:-1]:
                connection._dns_host = address
                try:
                    return connect()
                except NewConnectionError:
                    continue
            connection._dns_host = addresses[-1]
            return connect()
        finally:
            connection._dns_host = name


def _advice(host: str, port: int) -> str:
    return f"if this host is meant, name it in fetch.private_hosts: [{host}:{port}]"


class GuardedAdapter(HTTPAdapter):
    """Connections to what a guard allows, whose responses end in time.

    A proxy keeps its own kind of connection: it looks names up itself.
    """

    def __init__(self, guard: AddressGuard) -> None:
        super().__init__(pool_maxsize=32)
        self.poolmanager.pool_classes_by_scheme = _pools(guard)

    def proxy_manager_for(self, proxy: str, **settings: Any) -> ProxyManager:
        manager: ProxyManager = super().proxy_manager_for(proxy, **settings)
        manager.pool_classes_by_scheme = _pools()
        return manager


class GuardedSession(requests.Session):
    """Requests that go only where a guard allows; their redirects are followed by the caller."""

    def __init__(self, guard: AddressGuard) -> None:
        super().__init__()
        for prefix in ("http://", "https://"):
            self.mount(prefix, GuardedAdapter(guard))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: to prepare the next request, the body of a redirect would be read, which may be without an end."""


def _timed_response(connection: HTTPConnection, respond: Callable[[], HTTPResponse]) -> HTTPResponse:
    """A response whose header comes within the timeout of its connection, also where that comes letter by letter."""
    sock, seconds = connection.sock, connection.timeout
    # Not the method of the TLS layer, after which what is still encrypted would pass for the body.
    stop = partial(socket.socket.shutdown, sock, socket.SHUT_RDWR)
    expired = threading.Event()

    def end() -> None:
        expired.set()
        stop()

    try:
        with call_after(seconds if isinstance(seconds, float | int) else None, end):
            response = respond()
    except Exception as error:
        if expired.is_set():
            # What the socket itself reports of a header that does not begin in time.
            raise TimeoutError("timed out") from error
        raise
    vars(response)["stop"] = stop
    return response


def stop_of(response: Any) -> Callable[[], object]:
    """What breaks the connection of a response, from another thread."""
    stop: Callable[[], object] = vars(response)["stop"]
    return stop


@contextmanager
def call_after(seconds: float | None, action: Callable[[], object]) -> Iterator[None]:
    """Call an action in another thread where the block has not ended in time."""

    def act() -> None:
        # The connection may be closed by now.
        with suppress(OSError):
            action()

    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _pools(guard: AddressGuard | None = None) -> dict[str, type[HTTPConnectionPool]]:
    """Connection pools by scheme, of which each response begins within its timeout.

    With a guard they connect only where it allows.
    """

    class Timed:
        def getresponse(self) -> HTTPResponse:
            return _timed_response(self, super().getresponse)  # type: ignore[arg-type, misc]

        def _new_conn(self) -> socket.socket:
            connect = super()._new_conn  # type: ignore[misc]
            return guard.connect(self, connect) if guard else connect()  # type: ignore[arg-type]

    plain = type("Plain", (Timed, HTTPConnection), {})
    encrypted = type("Encrypted", (Timed, HTTPSConnection), {})
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("EncryptedPool", (HTTPSConnectionPool,), {"ConnectionCls": encrypted}),
    }
