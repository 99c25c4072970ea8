"""The endpoint of a group of agents: the first launcher listens and publishes its address in a file for the others."""

import json
import os
import secrets
import socket
import struct
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from fcntl import ioctl
from pathlib import Path
from typing import Any

from eopipe.launch.environment import ClusterEnvironment

# Beside the checkpoints of a training, unless EOPIPE_RDZV_FILE names another file.
ENDPOINT_FILE = "meeting.json"
LOOPBACK = "127.0.0.1"
# An address for documentation (RFC 5737): the route to it is the way out, and nothing is sent.
OUTSIDE_ADDRESS = "192.0.2.1"
SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Endpoint:
    """Where the first agent of a group listens, its fencing token, and what the members share.

    `secret` signs the messages of the agents; `done` says that the model is published.
    """

    group: str
    token: int
    host: str
    port: int
    secret: str
    done: bool = False

    def write(self, path: Path) -> None:
        """Write it where only this user can read it; whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def is_reachable(self) -> bool:
        """Whether a process listens there."""
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=5):
            return True
        return False


def read_endpoint(path: Path) -> Endpoint | None:
    """What the first launcher wrote; None where the file is missing or not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Endpoint(**content)
    except (OSError, ValueError, TypeError):
        return None


def open_endpoint(environment: ClusterEnvironment, token: int) -> tuple[Endpoint, socket.socket]:
    """Listen for the other launchers of a group; gives the endpoint to publish and the listening socket."""
    listening = listen(listen_address(environment), environment.port)
    host, port = listening.getsockname()
    return Endpoint(f"{environment.group}.{token}", token, host, port, secrets.token_hex(32)), listening


def listen(host: str, port: int) -> socket.socket:
    """Listen on one address of this node: on that port, or on a free one where it is taken."""
    for candidate in (port, 0):
        listening = socket.socket()
        # The port of an earlier run stays reserved for a minute otherwise.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError, OverflowError):
            listening.bind((host, candidate))
            listening.listen(1024)
            return listening
        listening.close()
    raise OSError(f"no port is free on {host}")


def listen_address(environment: ClusterEnvironment) -> str:
    """The IPv4 address of this node that the others of its group reach."""
    if environment.host:
        with suppress(OSError):
            address = socket.gethostbyname(environment.host)
            listen(address, 0).close()
            return address
    addresses = [address_towards(host) for host in (*environment.peers, OUTSIDE_ADDRESS)]
    return next((address for address in addresses if address and not address.startswith("127.")), LOOPBACK)


def address_towards(host: str) -> str:
    """The local address of the route to a host; empty where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
    return ""


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address; empty where none has it first."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                reply = ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return ""
