"""Every error a user can meet, each with the exit code from which a scheduler knows what to do next."""

import errno
import linecache
import os
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

# The modules of a custom model are imported into packages with this prefix (models/import_copy.py).
MODEL_PACKAGE = "eopipe_model_"


class EopipeError(Exception):
    """A problem in one sentence: what is wrong, where, and what is available or expected instead."""

    code = 70


class UsageError(EopipeError):
    """The command or the config is wrong."""

    code = 2


class ModelCodeError(UsageError):
    """The code of a custom model failed; `frames` are the lines of the traceback that are in that code."""

    def __init__(self, message: str, frames: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.frames = frames


class BadInputError(EopipeError):
    """Input data cannot be used."""

    code = 3


class MissingFileError(BadInputError):
    """A server has no file at an address."""


class OutsideGridError(BadInputError):
    """A raster is outside of the grid."""


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


class RequirementError(EopipeError):
    """A map does not reach what the config requires of it before it is published."""

    code = 9


class DriftError(EopipeError):
    """The inputs of a finished model are unlike its training's, or its map lacks a class: a failure, if so wanted."""

    code = 10


class PreemptedError(EopipeError):
    """Stopped by a signal; the state is saved, run the same command again."""

    code = 75


BY_CODE = {kind.code: kind for kind in EopipeError.__subclasses__()}


@contextmanager
def as_workflow_errors() -> Iterator[None]:
    """Raise errors as Snakemake's WorkflowError, which it prints without a traceback."""
    from snakemake.exceptions import WorkflowError

    try:
        yield
    except EopipeError as error:
        raise WorkflowError(str(error)) from None


def did_you_mean(name: str, known: Sequence[str] | Mapping[str, str], otherwise: str, likeness: float = 0.6) -> str:
    """A hint about a name that does not exist: the known one most like it, as it is written, or else another hint."""
    similar = get_close_matches(name, list(known), 1, likeness)
    return f"did you mean {known[similar[0]] if isinstance(known, Mapping) else similar[0]}?" if similar else otherwise


def some_of(names: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """The first of some names for a sentence, and how many more there are."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


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


def model_code_error(error: BaseException) -> ModelCodeError | None:
    """The error for an exception in the code of a custom model, with file and line; None for any other exception.

    A lack of memory is not an error of the model.
    """
    if isinstance(error, EopipeError | MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return None
    frames = tuple(_model_frames(error))
    if not frames:
        return None
    reason = (str(error).strip() or "no message").splitlines()[0]
    reason = re.sub(rf"{MODEL_PACKAGE}\w+\.", "", reason)
    return ModelCodeError(f"{frames[-1].partition(',')[0]}: {type(error).__name__}: {reason}", frames)


def _model_frames(error: BaseException) -> Iterator[str]:
    """The lines of a traceback that are in the files of a custom model: file, line, function and text."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        package, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
        if package.startswith(MODEL_PACKAGE):
            file = module.replace(".", "/") + ("/__init__.py" if "__path__" in frame.f_globals else ".py")
            text = linecache.getline(frame.f_code.co_filename, line).strip()
            yield f"{file} line {line}, in {frame.f_code.co_name}: {text}"
