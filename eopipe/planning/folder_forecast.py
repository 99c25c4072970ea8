"""What a run writes into a folder, beside what is there already."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.publish import MANIFEST


@dataclass(frozen=True)
class FolderForecast:
    """Files, folders and bytes of a part of the results; `existing`: the inodes and bytes that are there already."""

    folder: str
    jobs: int
    files: int
    bytes: int
    existing: tuple[int, int] = (0, 0)
    basis: str = "counted"
    folders: int = 0

    @property
    def inodes(self) -> int:
        """Files and folders."""
        return self.files + self.folders

    @property
    def json(self) -> dict[str, Any]:
        """The folder in the file of a plan."""
        numbers = {"jobs": self.jobs, "files": self.files, "folders": self.folders, "bytes": self.bytes}
        return {"folder": self.folder} | numbers | {"made": self.existing, "basis": self.basis}


def existing_inodes(paths: Iterable[Path], *parents: Path, linked: bool = True) -> tuple[int, int]:
    """Inodes and bytes of those outputs that exist, and of the folders above; without `linked` no hard links."""
    outputs = [path for path in paths if path.is_file() or (path / MANIFEST).is_file()]
    entries = [entry for path in outputs for entry in (path, *(path.rglob("*") if path.is_dir() else ()))]
    entries += [parent for parent in parents if parent.is_dir()]
    folders = sum(entry.is_dir() for entry in entries)
    statuses = [entry.stat() for entry in entries if not entry.is_dir()]
    counted = [status for status in statuses if linked or status.st_nlink == 1]
    return folders + len(counted), sum(status.st_size for status in counted)


def free_space(folder: Path) -> tuple[int, int]:
    """Free bytes and inodes where a folder is or will be."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free, os.statvfs(existing).f_favail
