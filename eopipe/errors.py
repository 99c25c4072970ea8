"""Every error a user can meet, each with the exit code from which a scheduler knows what to do next."""

import errno
import os
import shutil
from pathlib import Path


class EopipeError(Exception):
    """A problem in one sentence: what is wrong, where, and what is available or expected instead."""

    code = 70


class UsageError(EopipeError):
    """The command or the config is wrong."""

    code = 2


class BadInputError(EopipeError):
    """Input data cannot be used."""

    code = 3


class IntegrityError(EopipeError):
    """A file differs from its checksum, size or manifest."""

    code = 4


class UpstreamError(EopipeError):
    """A server failed or did not answer; the same command may succeed later."""

    code = 5


class NoSpaceError(EopipeError):
    """Disk, quota or memory is full."""

    code = 6


class DivergedError(EopipeError):
    """Training produced a loss or weights that are not finite."""

    code = 7


class RefusedError(EopipeError):
    """Input asked for something unsafe."""

    code = 8


class PreemptedError(EopipeError):
    """Stopped by a signal; the state is saved, run the same command again."""

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
    """Whether an exception means that disk or quota is full, or that a file exceeds the size limit."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def no_space(target: Path) -> NoSpaceError:
    """The error for a full disk, with the free bytes and files of its file system."""
    folder = next(p for p in (target, *target.parents) if p.exists())
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder).f_favail
    return NoSpaceError(
        f"no space left while writing {target.name}: {free / 1e6:.0f} MB and {files} files are free "
        f"in {folder}; free some space or quota, or raise a limit on file sizes (ulimit -f), and run the same "
        "command again"
    )
