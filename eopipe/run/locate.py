"""Which config a command uses, and the project folder that the paths in a config are relative to."""

import os
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from eopipe.errors import UsageError
from eopipe.provenance.record import record_path
from eopipe.publish import MANIFEST
from eopipe.text_table import shell_word

# The config of a project, and of a checkout.
NAMES = (Path("config.yaml"), Path("config/config.yaml"))


def shipped(name: str, *folders: Path) -> Path:
    """A file or folder that eopipe comes with: in these folders, in the checkout that it runs from, or installed."""
    places = [folder / name for folder in (*folders, Path(__file__).parents[2], Path(sys.prefix, "share/eopipe"))]
    existing = [place for place in places if place.exists()]
    if not existing:
        raise UsageError(f"eopipe's {name} is not here; run this in a checkout, or install eopipe with pip")
    return existing[0]


def find_config(path: Path | None = None) -> Path:
    """The config at a path or in a folder; without one the config of the working folder.

    Raises UsageError where there is none.
    """
    if path is not None and path.is_file():
        return path
    if path is not None and not path.is_dir():
        raise UsageError(f"there is no config file {path}")
    folder = path or Path()
    existing = [folder / name for name in NAMES if (folder / name).is_file()]
    if not existing:
        place = path or "this folder"
        raise UsageError(
            f"there is no config.yaml in {place}: change to the folder of your project, name its config file, or "
            "write one with `eopipe init`"
        )
    return existing[0]


def project_folder(config: Path) -> Path:
    """The absolute folder that the paths in a config are relative to, and in which it runs.

    It is the folder of the config; for one in a folder named `config`, or in a folder below it, the folder above
    `config`, as in a checkout.
    """
    folder = Path(os.path.abspath(config)).parent  # noqa: PTH100 - resolve() would follow links
    named = next((above for above in (folder, folder.parent) if above.name == "config"), None)
    return named.parent if named else folder


@contextmanager
def in_project(config: Path | None) -> Iterator[Path]:
    """Change to the project folder of a config; gives the config's path from there."""
    path = find_config(config)
    project = project_folder(path)
    relative = Path(os.path.relpath(path, project))
    if project != Path.cwd():
        print(f"in the project folder {os.path.relpath(project)}:", file=sys.stderr)
    with chdir(project):
        yield relative


def imports_chips(config: dict[str, Any]) -> bool:
    """Whether the run packs the chips of its chip set itself, from files."""
    return any(config["import"][name] for name in ("images", "masks", "folders", "windows"))


def chip_stores(config: dict[str, Any]) -> list[str]:
    """The names of the stores of a chip set; none of a run on scenes.

    Raises UsageError for a folder that `eopipe import` has not written.
    """
    if not config["chip_set"]:
        return []
    folder = Path(config["chip_set"])
    names = sorted(path.parent.name.removesuffix(".zarr") for path in folder.glob(f"tiles/*.zarr/{MANIFEST}"))
    if not names:
        record = record_path(folder)
        if not imports_chips(config):
            cure = "give the folder that `eopipe import` wrote"
        elif record.is_file():
            cure = f"remove its record {record}, and the run packs them again"
        else:
            cure = f"`eopipe run {shell_word(record)}` packs them alone"
        raise UsageError(f"chip_set: {folder} has no stores of chips; {cure}")
    return names
