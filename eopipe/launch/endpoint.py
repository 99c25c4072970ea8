"""Where the agents of a group meet: the first one listens and writes down where, the others find it there."""

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

from eopipe.launch.environment import LOOPBACK, Place

# Beside the checkpoints of a training, if not told otherwise.
MEETING = "meeting.json"
# Where the backend of torchrun finds that file, and the socket that the first one listens on.
MET, LISTENING = "EOPIPE_MEETING", "EOPIPE_LISTENING"
# An address for documentation (RFC 5737): the way to it is the way out, and nothing is sent.
ANYWHERE = "192.0.2.1"
SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Meeting:
    """Where the first agent of a group listens, under which token of the lease, and what its members share.

    `secret` signs what agents tell each other; `done` says that the model is published.
    """

    group: str
    token: int
    host: str
    port: int
    secret: str
    done: bool = False

    def write(self, path: Path) -> None:
        """Write it where only this user reads it; whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def read_meeting(path: Path) -> Meeting | None:
    """What the first launcher wrote; None where there is nothing whole."""
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Meeting(**told)
    except (OSError, ValueError, TypeError):
        return None


def call(place: Place, token: int) -> tuple[Meeting, socket.socket]:
    """Listen for the others of a group; gives what to write down for them, and the socket."""
    listening = listen(own_address(place), place.port)
    host, port = listening.getsockname()
    return Meeting(f"{place.group}.{token}", token, host, port, secrets.token_hex(32)), listening


def listen(host: str, port: int) -> socket.socket:
    """Listen on one address of this node: on that port, or on a free one where it is taken."""
    for wanted in (port, 0):
        listening = socket.socket()
        # The port of a run before waits a minute otherwise.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError, OverflowError):
            listening.bind((host, wanted))
            listening.listen(1024)
            return listening
        listening.close()
    raise OSError(f"no port is free on {host}")


def own_address(place: Place) -> str:
    """The IPv4 address of this node that the others of its group reach."""
    if place.host:
        with suppress(OSError):
            found = socket.gethostbyname(place.host)
            listen(found, 0).close()
            return found
    ways = [way_to(other) for other in (*place.others, ANYWHERE)]
    return next((own for own in ways if own and not own.startswith("127.")), LOOPBACK)


def way_to(host: str) -> str:
    """The own address from which the way to a host begins; empty where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, 9))
        return str(way.getsockname()[0])
    return ""


def answers(meeting: Meeting) -> bool:
    """Whether somebody listens there."""
    with suppress(OSError), socket.create_connection((meeting.host, meeting.port), timeout=5):
        return True
    return False


def interface(address: str) -> str:
    """The network interface that has an IPv4 address; empty where none has it first."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                told = ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(told[20:24]) == address:
                    return name
    return ""
