"""Import of a chip set: which files it is made of, the classes of its masks, and the lock of a set that a run reads."""

import atexit
import fcntl
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from eopipe.chips.chip_files import ChipFile, chip_pairs, chip_windows, class_folders, folder_of, refuse_outside
from eopipe.chips.chip_set import INDEX, ImportOptions, write_chip_set
from eopipe.contract import IN_WORKFLOW
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.kinds import Legend

log = logging.getLogger("eopipe")
SETTING = r"(?<![\w./])label\.(classes|bins|codes|ignore|values)\b(?![./])"
# Options about the values of masks.
OF_MASKS = ("codes", "values", "bins", "ignore")


def _chips_of(values: Mapping[str, Any]) -> tuple[tuple[str, ...], list[ChipFile]]:
    """The chips of folders with their classes, or those of a list or of two patterns, without.

    Raises UsageError for options that exclude each other, the errors of the functions that look for the chips, and
    RefusedError for files outside of the folders that may be read.
    """
    refuse_contradictions(values)
    root, names = values["root"], tuple[str, ...]()
    if values["folders"] is not None:
        names, chips = class_folders(values["folders"])
        folders = [values["folders"], Path()]
    elif values["windows"] is not None:
        folders = [root or values["windows"].parent]
        chips = chip_windows(values["windows"], *folders)
    else:
        patterns = values["images"], values["masks"]
        chips = chip_pairs(*patterns, root)
        folders = [*(folder_of(str(Path(root or "", pattern))) for pattern in patterns), root or Path()]
    # A config gives no permission to read elsewhere.
    refuse_outside(chips, [*folders, *values.get("allow_folder", ())])
    return names, chips


def _files(values: Mapping[str, Any], option: str) -> list[Path]:
    """The files of an import, each once; none where another option says where the chips are."""
    refuse_contradictions(values)
    if option != next((name for name in ("folders", "windows") if values[name] is not None), "images"):
        return []
    paths = (path for chip in _chips_of(values)[1] for path in (chip.image, chip.mask) if path is not None)
    return [*([values["windows"]] if option == "windows" else []), *dict.fromkeys(paths)]


def files_of_patterns(values: Mapping[str, Any]) -> list[Path]:
    """The images and masks that the patterns of an import match. Raises its errors for options and files."""
    return _files(values, "images")


def files_of_folders(values: Mapping[str, Any]) -> list[Path]:
    """The images in the folders of the classes of an import. Raises its errors for options and files."""
    return _files(values, "folders")


def files_of_list(values: Mapping[str, Any]) -> list[Path]:
    """The list of windows of an import, and its images and masks. Raises its errors for options and files."""
    return _files(values, "windows")


def files_of_import(values: Mapping[str, Any]) -> list[Path]:
    """All files that an import reads, each once. Raises its errors for options and files."""
    return [path for option in ("images", "folders", "windows") for path in _files(values, option)]


def state_of_files(values: Mapping[str, Any]) -> str:
    """A digest of names, sizes and times of the files of an import, which changes where one of them does."""
    rows = ((str(path), path.stat()) for path in files_of_import(values))
    text = "\n".join(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in rows)
    return sha256(text.encode()).hexdigest()


def refuse_contradictions(values: Mapping[str, Any]) -> None:
    """Raise UsageError for options of an import that exclude each other, or that do not say where the chips are."""
    if values["folders"] is not None:
        reason = "the classes are the names of the folders"
        _refuse(values, ("windows", "images", "masks", "root", "classes", *OF_MASKS), "--folders", reason)
    elif values["windows"] is not None:
        _refuse(values, ("images", "masks"), "--windows", "each window names its image and its mask or label")
    elif not (values["images"] and values["masks"] and values["classes"]):
        raise UsageError("import needs --images, --masks and --classes, or --folders, or --windows")
    try:
        re.compile(values["group"])
    except re.error as error:
        raise UsageError(f"--group {values['group']!r} is not a regular expression: {error}") from error


def _refuse(values: Mapping[str, Any], names: tuple[str, ...], option: str, reason: str) -> None:
    if present := [f"--{name}" for name in names if values[name]]:
        raise UsageError(f"{option} excludes {', '.join(present)}: {reason}")


def import_set(target: Path, values: Mapping[str, Any], options: ImportOptions) -> None:
    """Write the chip set of the values of the stage.

    Raises UsageError for options that exclude each other and where a run reads the set, BadInputError for chips that
    are not a set, RefusedError for files outside of the folders that may be read.
    """
    with _named_by_users():
        legend, chips = _choose(values)
        with _replacing(target):
            index = write_chip_set(target, chips, legend, options)
    log.info(
        "event=imported chips=%d slot=%d stores=%d without_label=%d without_valid_pixel=%d",
        *(len(index["chips"]), index["slot"], len(index["stores"]), len(index["without_label"])),
        len(index["without_valid_pixel"]),
    )


def _choose(values: Mapping[str, Any]) -> tuple[Legend, list[ChipFile]]:
    """The classes and the chips that the options name."""
    classes, (names, chips) = values["classes"], _chips_of(values)
    if names:
        return Legend(names), chips
    if chips[0].mask is None:
        _refuse(values, OF_MASKS, "--windows", "its windows have labels, and no masks")
        return Legend(_classes_of_labels(chips, classes)), chips
    if not classes:
        raise UsageError("import needs --classes for windows with masks")
    return Legend(classes, values["bins"], values["codes"], values["ignore"], values["values"]), chips


def _classes_of_labels(chips: list[ChipFile], classes: tuple[str, ...]) -> tuple[str, ...]:
    """The given classes, else all labels, sorted. Raises UsageError for labels of none, or a single class."""
    labels = sorted({chip.label for chip in chips})
    if classes and (unknown := [label for label in labels if label not in classes]):
        raise UsageError(f"--classes has no {', '.join(unknown)}, which windows have as label")
    if len(classes or labels) < 2:
        raise UsageError(f"the windows have one class, {labels[0]}; at least two are needed")
    return classes or tuple(labels)


def hold_chip_set(folder: Path) -> None:
    """Share the lock of a chip set with others that read it, to the end of this process.

    Nothing is held where a file system has no locks, or the set no index. Raises UsageError where it is being replaced.
    """
    with suppress(FileNotFoundError):
        index = (folder / INDEX).open("rb")
        # It keeps the file open, too.
        atexit.register(index.close)
        if not _can_lock(index.fileno(), fcntl.LOCK_SH):
            raise UsageError(
                f"{folder} is being replaced by `eopipe import`; wait for it, and run the same command again"
            )


@contextmanager
def _replacing(folder: Path) -> Iterator[None]:
    """Have the lock of a chip set alone, as far as there is one. Raises UsageError where a run reads it."""
    path = folder / INDEX
    if not path.is_file():
        yield
        return
    # Over NFS only a file that is open for writing can be locked by one process alone.
    with path.open("rb+" if os.access(path, os.W_OK) else "rb") as index:
        if not _can_lock(index.fileno(), fcntl.LOCK_EX):
            raise UsageError(
                f"{folder} is not replaced, for a run reads it; wait until that has ended, or choose another folder"
            )
        yield


def _can_lock(file: int, kind: int) -> bool:
    """Whether an open file could be locked, or cannot be locked by anyone."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def _named_by_users() -> Iterator[None]:
    """Errors within name options of the command (`--ignore 255`), in a run its settings (`import.ignore: [255]`)."""
    try:
        yield
    except (UsageError, BadInputError) as error:
        # Regression is not for chip sets.
        text = str(error).replace(", or set label.measure", "")
        if IN_WORKFLOW in os.environ:
            raise type(error)(re.sub(SETTING, r"import.\1", text)) from error
        text = re.sub(rf"{SETTING}: \[(.*?)\]", lambda m: f"--{m[1]} {m[2].replace(',', '')}", text)
        text = re.sub(r"set (?=--)", "give ", re.sub(SETTING, r"--\1", text))
        raise type(error)(text) from error
