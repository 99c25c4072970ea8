"""What may leave the machine: commands and messages without its paths and without credentials."""

import getpass
import os
import re
import shlex
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

ADDRESS = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>]+")
# A path begins where no word and no other slash comes before: 1/2, http://host and the dates ../2020-05-01 are none.
OUTSIDE = re.compile(r"(?:(?<![\w./~:])|(?<=:)(?!//))(?:~[\w.-]*|\.\.(?!/\d))?/[^\s'\"<>(),;:]*")
# The same of absolute paths alone: relative ones tell nothing of the machine.
ABSOLUTE = re.compile(r"(?<![\w./~:])/[^\s'\"<>(),;:]+")


def command(words: Iterable[str]) -> str:
    """A command line that can be shown: absolute paths become their last name, addresses lose their secrets.

    >>> command(["eopipe", "fetch", "--item", "/home/ada/my runs/a.geojson", "--scene=results/a"])
    'eopipe fetch --item a.geojson --scene=results/a'
    """
    return shlex.join(argument(word) for word in words)


def argument(word: str) -> str:
    """One word of a command line, or one setting, that can be shown.

    >>> argument("~/my runs/a.tif"), argument("2020-05-01/..")
    ('a.tif', '2020-05-01/..')
    """
    flag, equals, value = word.partition("=")
    if flag.startswith("--") and equals:
        return f"{flag}={argument(value)}"
    if "://" not in word and (word.startswith(("/", "~")) or "/../" in word or OUTSIDE.match(word)):
        return PurePosixPath(word).name or "."
    return scrub(word)


def scrub(text: str, words: Iterable[str] = ()) -> str:
    """A message that can be shown; `words` are the command's, whose paths may hold spaces.

    >>> scrub("cannot read /home/ada/x.json: see https://ada:pw@host/a?token=1")
    'cannot read x.json: see https://host/a'
    """
    for folder in sorted(_odd_folders(words), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    text = ADDRESS.sub(lambda found: address(found[0]), text)
    return OUTSIDE.sub(lambda found: _name(found[0]), text)


def _name(path: str) -> str:
    """The last name of a path; libraries tell addresses as the path and, behind ?, what lets somebody in."""
    place, query, _ = path.partition("?")
    return "." if query and place.endswith("/") else PurePosixPath(place).name or "."


def private(text: str, words: Iterable[str] = ()) -> str:
    """A message of this process that can be shown: without paths, credentials, and names of host and user."""
    return without_names(without_home(scrub(without_credentials(text), words)))


def shown(text: str) -> str:
    """A message for the person who sits here: the paths stay, credentials and the home do not."""
    return ADDRESS.sub(lambda found: address(found[0]), without_home(without_credentials(text)))


def kept(value: Any) -> Any:
    """A word or setting as a record keeps it: a path of this machine is told from where the job ran, or by its name."""
    if isinstance(value, (list, tuple)):
        return [kept(one) for one in value]
    if not isinstance(value, str):
        return value
    flag, equals, rest = value.partition("=")
    if equals and rest.startswith(("/", "../")):
        return f"{flag}={kept(rest)}"
    # Enough steps up, and the rest tells the same as an absolute path.
    if value.startswith(("/", "../")):
        return _from_here(os.path.normpath(Path.cwd() / value))
    return ABSOLUTE.sub(lambda found: _from_here(found[0]), shown(value))


def settings(text: str) -> str:
    """A config file with the paths of this machine cut to their names, and addresses without credentials."""
    import yaml

    try:
        values = _strings(yaml.safe_load(text))
    except yaml.YAMLError:
        values = set()
    for value in sorted((v for v in values if v.startswith(("/", "~/"))), key=len, reverse=True):
        text = text.replace(value, PurePosixPath(value).name)
    for value in (v for v in values if "://" in v):
        text = text.replace(value, ADDRESS.sub(lambda found: address(found[0]), value))
    return ABSOLUTE.sub(lambda found: PurePosixPath(found[0]).name or ".", without_home(without_credentials(text)))


def _strings(value: Any) -> set[str]:
    if isinstance(value, (dict, list)):
        return {text for one in (value.values() if isinstance(value, dict) else value) for text in _strings(one)}
    return {value} if isinstance(value, str) else set()


def _from_here(path: str) -> str:
    here = Path.cwd()
    if os.path.commonpath([path, here]) == "/":
        return PurePosixPath(path).name or "."
    near = os.path.relpath(path, here)
    return near if without_names(near) == near else PurePosixPath(path).name


def _odd_folders(words: Iterable[str]) -> set[str]:
    """The folders that absolute paths of a command lie in and that the pattern would cut in two."""
    values = [word.partition("=")[2] if word.startswith("--") else word for word in words]
    folders = {str(p) for value in values if value.startswith("/") for p in PurePosixPath(value).parents}
    return {folder for folder in folders if "?" in folder or not OUTSIDE.fullmatch(folder)}


def address(text: str) -> str:
    """An address without user, password, query and fragment, where access tokens stand."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "(an address)"
    if parts.scheme == "file":
        return PurePosixPath(parts.path).name
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


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
