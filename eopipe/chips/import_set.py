"""Import of a chip set: which files it is made of, the classes of its masks, and the lock of a set that a run reads."""

import atexit
import fcntl
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from eopipe.chips.chip_files import ChipFile, chip_pairs, chip_windows, class_folders, folder_of, refuse_outside
from eopipe.chips.chip_set import INDEX, ImportOptions, write_chip_set
from eopipe.contract import IN_WORKFLOW
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.classes import Legend

log = logging.getLogger("eopipe")
SETTING = r"(?<![\w./])label\.(classes|bins|codes|ignore|values)\b(?![./])"
# Options about the values of masks.
OF_MASKS = ("codes", "values", "bins", "ignore")


@dataclass(frozen=True)
class ImportSource:
    """Where the chips of a set are, as the options name it: two patterns, a folder for each class, or a list.

    `root` is the folder that patterns and the paths of the list start from.
    """

    root: Path | None
    folders: Path | None
    windows: Path | None
    images: str | None
    masks: str | None
    allow_folder: tuple[Path, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "ImportSource":
        """The source that the values of the stage name."""
        root, folders, windows, images, masks = (
            values[name] for name in ("root", "folders", "windows", "images", "masks")
        )
        # A config gives no permission to read elsewhere.
        return cls(root, folders, windows, images, masks, values.get("allow_folder", ()))

    def pairs(self) -> list[ChipFile]:
        """The chips of the two patterns; none without them. Raises the errors of `chip_pairs`, and RefusedError."""
        if self.images is None or self.masks is None:
            return []
        chips = chip_pairs(self.images, self.masks, self.root)
        folders = [folder_of(str(Path(self.root or "", pattern))) for pattern in (self.images, self.masks)]
        refuse_outside(chips, [*folders, self.root or Path(), *self.allow_folder])
        return chips

    def by_class(self) -> tuple[tuple[str, ...], list[ChipFile]]:
        """The classes and the chips of the folder. Raises the errors of `class_folders`, and RefusedError."""
        if self.folders is None:
            return (), []
        names, chips = class_folders(self.folders)
        refuse_outside(chips, [self.folders, Path(), *self.allow_folder])
        return names, chips

    def of_list(self) -> list[ChipFile]:
        """The chips of the list; none without one. Raises the errors of `chip_windows`, and RefusedError."""
        if self.windows is None:
            return []
        folder = self.root or self.windows.parent
        chips = chip_windows(self.windows, folder)
        refuse_outside(chips, [folder, *self.allow_folder])
        return chips


def files_of_patterns(values: Mapping[str, Any]) -> list[Path]:
    """The images and masks that the patterns of an import match. Raises its errors for options and files."""
    refuse_contradictions(values)
    is_used = values["folders"] is None and values["windows"] is None
    return _files(ImportSource.of(values).pairs()) if is_used else []


def files_of_folders(values: Mapping[str, Any]) -> list[Path]:
    """The images in the folders of the classes of an import. Raises its errors for options and files."""
    refuse_contradictions(values)
    return _files(ImportSource.of(values).by_class()[1])


def files_of_list(values: Mapping[str, Any]) -> list[Path]:
    """The list of windows of an import, and its images and masks. Raises its errors for options and files."""
    refuse_contradictions(values)
    chips = ImportSource.of(values).of_list()
    return [values["windows"], *_files(chips)] if chips else []


def files_of_import(values: Mapping[str, Any]) -> list[Path]:
    """All files that an import reads, each once. Raises its errors for options and files."""
    return [path for files in (files_of_patterns, files_of_folders, files_of_list) for path in files(values)]


def state_of_files(values: Mapping[str, Any]) -> str:
    """A digest of names, sizes and times of the files of an import, which changes where one of them does."""
    rows = ((str(path), path.stat()) for path in files_of_import(values))
    text = "\n".join(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in rows)
    return sha256(text.encode()).hexdigest()


def _files(chips: list[ChipFile]) -> list[Path]:
    """The images and masks of chips, each once."""
    return [*dict.fromkeys(path for chip in chips for path in (chip.image, chip.mask) if path is not None)]


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
    refuse_contradictions(values)
    source, classes = ImportSource.of(values), values["classes"]
    if source.folders is not None:
        names, chips = source.by_class()
        return Legend(names), chips
    chips = source.pairs() if source.windows is None else source.of_list()
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
