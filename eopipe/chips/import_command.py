"""`eopipe import`: chips that exist already, as pairs, folders by class or windows, become packed stores."""

import argparse
import atexit
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from eopipe.arguments import Parser
from eopipe.chips.chip_files import ChipFile, chip_pairs, chip_windows, class_folders, folder_of, refuse_outside
from eopipe.chips.chip_set import INDEX, ImportOptions, import_chips
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.classes import Legend

log = logging.getLogger("eopipe")
SETTING = r"(?<![\w./])label\.(classes|bins|codes|ignore|values)\b(?![./])"


def import_command(argv: list[str]) -> int:
    """Pack chips that exist already, each with its own CRS and place, into tile and label stores with an index.

    Give --images, --masks and --classes for image/mask pairs, --folders for a folder of chips for each class, or
    --windows for parts of larger images.
    """
    _refuse_expanded(argv)
    arguments = _parser().parse_args(argv)
    start = time.monotonic()
    _check_pattern(arguments.group)
    with _named_by_options():
        legend, chips = _choose(arguments)
    refuse_outside(chips, [*_folders(arguments), *arguments.allow_folder])
    options = ImportOptions(
        *(tuple(arguments.bands), arguments.nodata, arguments.scale, arguments.offset),
        *(arguments.collection or arguments.target.absolute().name, arguments.group, arguments.threads),
    )
    with _named_by_options(), _replacing(arguments.target):
        index = import_chips(arguments.target, chips, legend, options)
    log.info(
        "event=imported chips=%d slot=%d stores=%d without_label=%d without_valid_pixel=%d seconds=%.1f wrote=%r",
        *(len(index["chips"]), index["slot"], len(index["stores"]), len(index["without_label"])),
        *(len(index["without_valid_pixel"]), time.monotonic() - start, str(arguments.target)),
    )
    return 0


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


def _refuse_expanded(argv: list[str]) -> None:
    """Raise UsageError where the shell has put the names of files in the place of a pattern."""
    for option in {"--images", "--masks"} & {*argv}:
        words = [*takewhile(lambda word: not word.startswith("-"), argv[argv.index(option) + 1 :])]
        if len(words) > 1 and all(Path(word).is_file() for word in words[:2]):
            pattern = str(Path(words[0]).with_name(f"*{Path(words[0]).suffix}"))
            raise UsageError(
                f"{option} has {len(words)} words, such as {words[0]}, for the shell replaces a pattern by the files "
                f"that match it; quote the pattern, as in {option} '{pattern}'"
            )


@contextmanager
def _named_by_options() -> Iterator[None]:
    """Errors within name the options of this command (`--ignore 255`), not the settings of a config."""
    try:
        yield
    except (UsageError, BadInputError) as error:
        # Regression is not for chip sets.
        text = str(error).replace(", or set label.measure", "")
        text = re.sub(rf"{SETTING}: \[(.*?)\]", lambda m: f"--{m[1]} {m[2].replace(',', '')}", text)
        text = re.sub(r"set (?=--)", "give ", re.sub(SETTING, r"--\1", text))
        raise type(error)(text) from error


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"--group {text!r} is not a regular expression: {error}") from error


def _choose(arguments: argparse.Namespace) -> tuple[Legend, list[ChipFile]]:
    """The classes and the chips that the options name."""
    of_masks = ("codes", "values", "bins", "ignore")
    if arguments.folders is not None:
        reason = "the classes are the names of the folders"
        _refuse(arguments, ("windows", "images", "masks", "classes", *of_masks), "--folders", reason)
        names, chips = class_folders(arguments.folders)
        return Legend(names), chips
    if arguments.windows is not None:
        _refuse(arguments, ("images", "masks"), "--windows", "each window names its image and its mask or label")
        chips = chip_windows(arguments.windows)
        if chips[0].mask is None:
            _refuse(arguments, of_masks, "--windows", "its windows have labels, and no masks")
            return Legend(_classes_of_labels(chips, tuple(arguments.classes))), chips
        if not arguments.classes:
            raise UsageError("import needs --classes for windows with masks")
    elif arguments.images and arguments.masks and arguments.classes:
        chips = chip_pairs(arguments.images, arguments.masks)
    else:
        raise UsageError("import needs --images, --masks and --classes, or --folders, or --windows")
    bins, codes, ignore = tuple(arguments.bins), tuple(arguments.codes), tuple(arguments.ignore)
    return Legend(tuple(arguments.classes), bins, codes, ignore, tuple(arguments.values)), chips


def _folders(arguments: argparse.Namespace) -> list[Path]:
    """The folders that a command names: that of the list of windows, else those of the chips and the current one."""
    if arguments.windows is not None:
        return [arguments.windows.parent]
    named = (
        [arguments.folders] if arguments.folders is not None else map(folder_of, (arguments.images, arguments.masks))
    )
    return [*named, Path()]


def _classes_of_labels(chips: list[ChipFile], classes: tuple[str, ...]) -> tuple[str, ...]:
    """The given classes, else all labels, sorted. Raises UsageError for labels of none, or a single class."""
    labels = sorted({chip.label for chip in chips})
    if classes and (unknown := [label for label in labels if label not in classes]):
        raise UsageError(f"--classes has no {', '.join(unknown)}, which windows have as label")
    if len(classes or labels) < 2:
        raise UsageError(f"the windows have one class, {labels[0]}; at least two are needed")
    return classes or tuple(labels)


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], option: str, reason: str) -> None:
    if present := [f"--{name}" for name in names if getattr(arguments, name)]:
        raise UsageError(f"{option} excludes {', '.join(present)}: {reason}")


def _parser() -> Parser:
    parser = Parser(prog="eopipe import", description=import_command.__doc__)
    add = parser.add_argument
    add("target", type=Path, help="folder to write: tiles/, labels/ and the index chips.json")
    add("--folders", type=Path, help="folder with a folder of GeoTIFF chips for each class")
    add("--windows", type=Path, help="JSON list of windows: id, image, window, and mask or label")
    add("--images", help="pattern of the images with one *, such as 'S2/*_S2.tif'")
    add("--masks", help="pattern of the masks; * is the same text as in --images")
    add("--classes", nargs="+", default=[], help="class names, in the order of the class numbers 0, 1, …")
    add("--codes", nargs="+", type=int, default=[], help="mask value of each class [0, 1, …]")
    add("--values", nargs="+", default=[], help="class=value for each mask value, also several per class")
    add("--bins", nargs="+", type=float, default=[], help="edges between the classes of a continuous mask")
    add("--ignore", nargs="+", type=int, default=[], help="mask values that mean unlabelled, such as -1")
    add("--bands", nargs="+", default=[], help="names of the bands [descriptions in the first file, else band_1, …]")
    add("--nodata", type=float, help="number that means nodata in an image [what the file states]")
    add("--scale", type=float, help="physical value = stored * scale + offset [what the files state, else 1]")
    add("--offset", type=float, help="offset of physical values [what the files state, else 0]")
    add(
        "--allow-folder",
        nargs="+",
        type=Path,
        default=[],
        help="folders outside of that of the chips, or of the list of windows, to which its paths and links may lead",
    )
    add("--group", default="", help="regular expression: what it matches in the id of a chip is its group, for split")
    add("--collection", help="name of the chip set in report, cards and crate [that of its folder]")
    add(
        "--threads",
        type=int,
        default=2,
        help="rows of slots that are read at a time; the bytes do not depend on it [2]",
    )
    return parser
