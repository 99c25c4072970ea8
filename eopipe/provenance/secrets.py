"""What this process knows and nobody else may read: credentials in the environment, names of the host and the user."""

import getpass
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|SUBSCRIPTION_?KEY|JWT|SIGNATURE", re.IGNORECASE
)
# A shorter value is a number or a switch, and would be found in every other word.
SHORTEST = 6
# Names that many bear, and that are words besides.
ANYBODY = ("root", "user", "admin", "ubuntu", "debian", "localhost", "host", "node")


def without_credentials(text: str) -> str:
    """A text without the values of the environment whose names say that they are secret."""
    for value in sorted(_credentials(), key=len, reverse=True):
        text = text.replace(value, "(secret)")
    return text


def without_home(text: str) -> str:
    """A text whose paths do not tell where the home is."""
    home = str(Path.home())
    return text.replace(f"{home}/", "~/") if home != "/" else text


def without_names(text: str) -> str:
    """A text without the names of the host and the user, unless anybody may bear them."""
    for name, word in _names():
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
    return text


def _credentials() -> set[str]:
    return {value for name, value in os.environ.items() if SECRET.search(name) and len(value) >= SHORTEST}


def _names() -> Iterator[tuple[str, str]]:
    host = socket.gethostname()
    found = [(host, "(host)"), (host.partition(".")[0], "(host)")]
    # In a container there may be no such user.
    with suppress(KeyError, OSError):
        found.append((getpass.getuser(), "(user)"))
    yield from ((name, word) for name, word in found if len(name) > 2 and name not in ANYBODY)
