"""Chips that exist already -> a chip set: packed tile and label stores with an index."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Knob, Option, Output

REVISION = 2


def import_chips(
    chip_set: Annotated[
        Path,
        Output(
            "chips",
            "folder to write: tiles/, labels/ and the index chips.json",
            folder=True,
            stores=("tiles", "labels"),
            positional=True,
        ),
    ],
    *,
    images: Annotated[
        str | None, Option("pattern of the images with one *, such as 'S2/*_S2.tif'", min_length=1, glob=True)
    ] = None,
    masks: Annotated[
        str | None, Option("pattern of the masks; * is the same text as in --images", min_length=1, glob=True)
    ] = None,
    root: Annotated[
        Path | None,
        Input(
            "folder that patterns, and the paths of a list of windows, start from (default: the current one, or "
            "the list's)",
            folder=True,
            user=True,
            files="eopipe.chips.import_set:files_of_patterns",
        ),
    ] = None,
    folders: Annotated[
        Path | None,
        Input(
            "folder with a folder of GeoTIFF chips for each class",
            folder=True,
            user=True,
            files="eopipe.chips.import_set:files_of_folders",
        ),
    ] = None,
    windows: Annotated[
        Path | None,
        Input(
            "JSON list of windows: id, image, window, and mask or label",
            format="application/json",
            user=True,
            files="eopipe.chips.import_set:files_of_list",
        ),
    ] = None,
    classes: Annotated[tuple[str, ...], Option("class names, in the order of the class numbers 0, 1, …")] = (),
    codes: Annotated[tuple[int, ...], Option("mask value of each class (default: 0, 1, …)")] = (),
    values: Annotated[tuple[str, ...], Option("class=value for each mask value, also several per class")] = (),
    bins: Annotated[tuple[float, ...], Option("edges between the classes of a continuous mask")] = (),
    ignore: Annotated[tuple[int, ...], Option("mask values that mean unlabelled, such as -1")] = (),
    bands: Annotated[
        tuple[str, ...], Option("names of the bands (default: descriptions in the first file, else band_1, …)")
    ] = (),
    nodata: Annotated[
        float | None, Option("number that means nodata in an image (default: what the file states)")
    ] = None,
    scale: Annotated[
        float | None,
        Option("physical value = stored * scale + offset (default: what the files state, else 1)"),
    ] = None,
    offset: Annotated[float | None, Option("offset of physical values (default: what the files state, else 0)")] = None,
    group: Annotated[
        str, Option("regular expression: what it matches in the id of a chip is its group, for split")
    ] = "",
    collection: Annotated[
        str | None, Option("name of the chip set in report, cards and crate (default: the folder's)")
    ] = None,
    allow_folder: Annotated[
        tuple[Path, ...],
        Knob("folders outside of the chips' folder, or of the list of windows, to which its paths and links may lead"),
    ] = (),
    threads: Annotated[int, Knob("rows of slots that are read at a time; the bytes do not depend on it", ge=1)] = 2,
) -> None:
    """Pack chips that exist already, each with its own CRS and place, into tile and label stores with an index.

    Give --images, --masks and --classes for image/mask pairs, --folders for a folder of chips for each class, or
    --windows for parts of larger images. Raises UsageError for options that exclude each other, and where a run reads
    the set that would be replaced; BadInputError for chips of different bands, data types or scales, and for masks that
    do not fit; RefusedError for files outside of the folders that may be read.
    """
    from eopipe.chips.chip_set import ImportOptions
    from eopipe.chips.import_set import import_set

    named = {"root": root, "folders": folders, "windows": windows, "images": images, "masks": masks}
    labels = {"classes": classes, "codes": codes, "values": values, "bins": bins, "ignore": ignore}
    options = ImportOptions(bands, nodata, scale, offset, collection or chip_set.absolute().name, group, threads)
    import_set(chip_set, named | labels | {"group": group, "allow_folder": allow_folder}, options)
