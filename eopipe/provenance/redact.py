"""Redaction of paths and credentials from commands, messages, run records and configs.

Three degrees, by who reads the text: the person at the terminal (paths stay), a run record in the project's folder
(paths relative to the working folder of the job), a crate or bug report that goes to others (file names only).
"""

import getpass
import os
import platform
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from eopipe.text_files import parse_yaml

URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>]+")
# A path that leads out of the working folder. It follows neither a word character nor another slash, so that 1/2,
# http://host and the date range ../2020-05-01 do not match.
OUTSIDE_PATH = re.compile(r"(?:(?<![\w./~:])|(?<=:)(?!//))(?:~[\w.-]*|\.\.(?!/\d))?/[^\s'\"<>(),;:]*")
# Absolute paths only: relative ones reveal nothing about the machine.
ABSOLUTE_PATH = re.compile(r"(?<![\w./~:])/[^\s'\"<>(),;:]+")
CREDENTIAL_VARIABLE = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|SUBSCRIPTION_?KEY|JWT|SIGNATURE", re.IGNORECASE
)
# A shorter value is a number or a switch, and would match inside of ordinary words.
SHORTEST_CREDENTIAL = 6
# Names of users and hosts that identify nobody, and that are ordinary words as well.
GENERIC_NAMES = ("root", "user", "admin", "ubuntu", "debian", "localhost", "host", "node")


def redact_command(arguments: Iterable[str]) -> str:
    """A command line for others: absolute paths become file names, URLs lose their credentials.

    >>> redact_command(["eopipe", "fetch", "--item", "/home/ada/my runs/a.geojson", "--scene=results/a"])
    'eopipe fetch --item a.geojson --scene=results/a'
    """
    return shlex.join(redact_argument(argument) for argument in arguments)


def redact_argument(argument: str) -> str:
    """One argument of a command line, or the value of one setting, for others.

    >>> redact_argument("~/my runs/a.tif"), redact_argument("2020-05-01/..")
    ('a.tif', '2020-05-01/..')
    """
    flag, equals, value = argument.partition("=")
    if flag.startswith("--") and equals:
        return f"{flag}={redact_argument(value)}"
    leads_out = argument.startswith(("/", "~")) or "/../" in argument or OUTSIDE_PATH.match(argument)
    if "://" not in argument and leads_out:
        return PurePosixPath(argument).name or "."
    return redact_paths(argument)


def command_for_log(arguments: Iterable[str]) -> str:
    """A command for the log of its job: pasted in the working folder it runs the job again; without credentials."""
    return shlex.join(_from_working_folder(mask_credentials(argument)) for argument in arguments)


def _from_working_folder(argument: str) -> str:
    """An argument with an absolute path as a relative one, unless the two share nothing."""
    name, equals, value = argument.partition("=")
    if equals and value.startswith("/"):
        return f"{name}={_from_working_folder(value)}"
    if not argument.startswith("/") or os.path.commonpath([argument, Path.cwd()]) == "/":
        return argument
    return os.path.relpath(argument)


def redact_paths(text: str, arguments: Iterable[str] = ()) -> str:
    """A message for others; `arguments` are the command's, whose paths may contain spaces.

    >>> redact_paths("cannot read /home/ada/x.json: see https://ada:pw@host/a?token=1")
    'cannot read x.json: see https://host/a'
    """
    for folder in sorted(_unmatched_folders(arguments), key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    text = URL.sub(lambda match: url_without_credentials(match[0]), text)
    return OUTSIDE_PATH.sub(lambda match: _file_name(match[0]), text)


def _file_name(path: str) -> str:
    """The last name of a path; libraries print URLs as a path and, behind `?`, the query with its credentials."""
    location, query, _ = path.partition("?")
    return "." if query and location.endswith("/") else PurePosixPath(location).name or "."


def redact_message(text: str, arguments: Iterable[str] = ()) -> str:
    """A message of this process for others: without paths, credentials, and names of host and user."""
    return mask_names(mask_home(redact_paths(mask_credentials(text), arguments)))


def redact_for_terminal(text: str) -> str:
    """A message for the person at the terminal: paths stay, credentials and the home folder are masked."""
    return URL.sub(lambda match: url_without_credentials(match[0]), mask_home(mask_credentials(text)))


def redact_for_record(value: Any) -> Any:
    """An argument or setting for a run record: paths relative to the working folder, or only their file names."""
    if isinstance(value, (list, tuple)):
        return [redact_for_record(element) for element in value]
    if not isinstance(value, str):
        return value
    name, equals, path = value.partition("=")
    if equals and path.startswith(("/", "../")):
        return f"{name}={redact_for_record(path)}"
    # A relative path with enough `..` reveals as much as an absolute one.
    if value.startswith(("/", "../")):
        return _relative_path(os.path.normpath(Path.cwd() / value))
    return ABSOLUTE_PATH.sub(lambda match: _relative_path(match[0]), redact_for_terminal(value))


def redact_config(text: str) -> str:
    """The text of a config file for others: paths of this machine cut to file names, URLs without credentials."""
    import yaml

    try:
        values = {*strings(parse_yaml(text))}
    except (yaml.YAMLError, ValueError, RecursionError):
        values = set()
    for path in sorted((value for value in values if value.startswith(("/", "~/"))), key=len, reverse=True):
        text = text.replace(path, PurePosixPath(path).name)
    for value in (value for value in values if "://" in value):
        text = text.replace(value, URL.sub(lambda match: url_without_credentials(match[0]), value))
    text = mask_home(mask_credentials(text))
    return ABSOLUTE_PATH.sub(lambda match: PurePosixPath(match[0]).name or ".", text)


def strings(value: Any) -> Iterator[str]:
    """All strings of nested lists and dicts."""
    if isinstance(value, (dict, list)):
        for element in value.values() if isinstance(value, dict) else value:
            yield from strings(element)
    elif isinstance(value, str):
        yield value


def _relative_path(path: str) -> str:
    """A path relative to the working folder; the file name where the two share nothing, or where it holds a name."""
    working_folder = Path.cwd()
    if os.path.commonpath([path, working_folder]) == "/":
        return PurePosixPath(path).name or "."
    relative = os.path.relpath(path, working_folder)
    return relative if mask_names(relative) == relative else PurePosixPath(path).name


def _unmatched_folders(arguments: Iterable[str]) -> set[str]:
    """The folders of absolute paths in a command that `OUTSIDE_PATH` would match only in part."""
    values = [argument.partition("=")[2] if argument.startswith("--") else argument for argument in arguments]
    folders = {str(p) for value in values if value.startswith("/") for p in PurePosixPath(value).parents}
    return {folder for folder in folders if "?" in folder or not OUTSIDE_PATH.fullmatch(folder)}


def url_without_credentials(url: str) -> str:
    """A URL without user, password, query and fragment, which may hold access tokens."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address)"
    if parts.scheme == "file":
        return PurePosixPath(parts.path).name
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def mask_credentials(text: str) -> str:
    """A text without the values of environment variables whose names say that they hold credentials."""
    values = {value for name, value in os.environ.items() if CREDENTIAL_VARIABLE.search(name)}
    for value in sorted((value for value in values if len(value) >= SHORTEST_CREDENTIAL), key=len, reverse=True):
        text = text.replace(value, "(secret)")
    return text


def mask_home(text: str) -> str:
    """A text with `~` in place of the home folder."""
    home = str(Path.home())
    return text.replace(f"{home}/", "~/") if home != "/" else text


def mask_names(text: str) -> str:
    """A text without the names of the host and the user, unless they are generic."""
    for name, mask in _names():
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", mask, text)
    return text


def _names() -> Iterator[tuple[str, str]]:
    """The names to mask, each with its mask."""
    host = platform.node()
    masks = [(host, "(host)"), (host.partition(".")[0], "(host)")]
    # A container may have no entry for its user.
    with suppress(KeyError, OSError):
        masks.append((getpass.getuser(), "(user)"))
    yield from ((name, mask) for name, mask in masks if len(name) > 2 and name not in GENERIC_NAMES)
