"""Every error a user can meet, each with the exit code that tells a scheduler what to do next."""

import errno
import os
import shutil
from pathlib import Path


class EopipeError(Exception):
    """A problem told in one sentence: what is wrong, where, and what there is instead."""

    code = 70


class UsageError(EopipeError):
    """The command or the config is wrong."""

    code = 2


class BadInputError(EopipeError):
    """Input data cannot be used."""

    code = 3


class IntegrityError(EopipeError):
    """A file is not what its checksum, size or manifest says."""

    code = 4


class UpstreamError(EopipeError):
    """A server did not deliver; the same command may work later."""

    code = 5


class NoSpaceError(EopipeError):
    """Disk, quota or memory is used up."""

    code = 6


class DivergedError(EopipeError):
    """Training produced a loss or weights that are not finite."""

    code = 7


class RefusedError(EopipeError):
    """Input asked for something unsafe."""

    code = 8


class PreemptedError(EopipeError):
    """Stopped from outside; the state is saved, run the same command again."""

    code = 75


BY_CODE = {
    kind.code: kind
    for kind in (
        UsageError,
        BadInputError,
        IntegrityError,
        UpstreamError,
        NoSpaceError,
        DivergedError,
        RefusedError,
        PreemptedError,
    )
}


def is_full(error: BaseException) -> bool:
    """Whether an exception means that the disk or the quota is used up, or a file larger than is allowed."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def no_space(where: Path) -> NoSpaceError:
    """The error for a full disk, with what is free in bytes and files."""
    there = next(p for p in (where, *where.parents) if p.exists())
    free, files = shutil.disk_usage(there).free, os.statvfs(there).f_favail
    return NoSpaceError(
        f"no space left while writing {where.name}: {free / 1e6:.0f} MB and {files} files are free "
        f"in {there}; free some space or quota, or raise a limit on file sizes (ulimit -f), and run the same "
        "command again"
    )
