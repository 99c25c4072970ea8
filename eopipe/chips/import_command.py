"""`eopipe import`: chips that exist already, as image/mask pairs or in folders by class, become packed stores."""

import argparse
import logging
import re
import time
from pathlib import Path

from eopipe.arguments import Parser
from eopipe.chips.chip_files import chip_pairs, class_folders
from eopipe.chips.chip_set import ImportOptions, import_chips
from eopipe.errors import UsageError
from eopipe.labels.classes import Legend

log = logging.getLogger("eopipe")


def import_command(argv: list[str]) -> int:
    """Pack chips that exist already, each with its own CRS and place, into tile and label stores with an index.

    Give --images, --masks and --classes for image/mask pairs, or --folders for a folder of chips for each class.
    """
    arguments = _parser().parse_args(argv)
    start = time.monotonic()
    _check_pattern(arguments.group)
    if arguments.folders is not None:
        _refuse(arguments, ("images", "masks", "classes", "bins", "codes", "values", "ignore"), "--folders")
        names, chips = class_folders(arguments.folders)
        legend = Legend(names)
    else:
        if not (arguments.images and arguments.masks and arguments.classes):
            raise UsageError("import needs --images, --masks and --classes, or --folders")
        bins, codes, ignore = tuple(arguments.bins), tuple(arguments.codes), tuple(arguments.ignore)
        legend = Legend(tuple(arguments.classes), bins, codes, ignore, tuple(arguments.values))
        chips = chip_pairs(arguments.images, arguments.masks)
    options = ImportOptions(
        *(tuple(arguments.bands), arguments.nodata, arguments.scale, arguments.offset),
        *(arguments.collection, arguments.group, arguments.threads),
    )
    index = import_chips(arguments.target, chips, legend, options)
    log.info(
        "event=imported chips=%d slot=%d stores=%d without_label=%d without_valid_pixel=%d seconds=%.1f wrote=%r",
        *(len(index["chips"]), index["slot"], len(index["stores"]), len(index["without_label"])),
        *(len(index["without_valid_pixel"]), time.monotonic() - start, str(arguments.target)),
    )
    return 0


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(f"--group {text!r} is not a regular expression: {error}") from error


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...], option: str) -> None:
    if present := [f"--{name}" for name in names if getattr(arguments, name)]:
        raise UsageError(f"{option} excludes {', '.join(present)}: the classes are the names of the folders")


def _parser() -> Parser:
    parser = Parser(prog="eopipe import", description=import_command.__doc__)
    add = parser.add_argument
    add("target", type=Path, help="folder to write: tiles/, labels/ and the index chips.json")
    add("--folders", type=Path, help="folder with a folder of GeoTIFF chips for each class")
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
    add("--group", default="", help="regular expression: what it matches in the id of a chip is its group, for split")
    add("--collection", help="name of the chip set, for model cards and the crate")
    add(
        "--threads",
        type=int,
        default=2,
        help="rows of slots that are read at a time; the bytes do not depend on it [2]",
    )
    return parser
