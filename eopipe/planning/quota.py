"""What a run may write: quotas of a user, and the free space of a file system."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from eopipe.contract import Argument
from eopipe.errors import UsageError
from eopipe.text_table import format_bytes

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def free_space(folder: Path) -> tuple[int, int]:
    """Free bytes and inodes where a folder is or will be."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free, os.statvfs(existing).f_favail


@dataclass(frozen=True)
class Quota:
    """What a run may take."""

    max_files: Annotated[
        int | None, Argument("inode quota: refuse a run that makes more files and folders (exit code 6)")
    ] = None
    max_bytes: Annotated[
        str | None,
        Argument(
            "disk quota, such as 200GB: refuse a run that writes more, without the weights (exit code 6)", value="SIZE"
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None:
            parse_size(self.max_bytes)

    def refusals(self, inodes: int, size: int) -> list[str]:
        """A sentence for each limit that a run exceeds."""
        sentences, limit = [], None if self.max_bytes is None else parse_size(self.max_bytes)
        if self.max_files is not None and inodes > self.max_files:
            sentences.append(f"it needs {inodes} files and folders, --max-files allows {self.max_files}")
        if limit is not None and size > limit:
            sentences.append(f"it needs {format_bytes(size)}, --max-bytes allows {format_bytes(limit)}")
        return sentences


def parse_size(text: str) -> int:
    """Bytes of a size such as 500MB, 2TiB or 1000; raises UsageError for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?) ?([kmgt]i?)?b?", text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is not a size; write a number with a unit, such as 500MB or 2TiB")
    return round(float(match[1]) * UNITS[match[2] or ""])
