"""`eopipe tiles`: stores described as text, checked, drawn as a contact sheet, or exported to GeoTIFF."""

import argparse
import sys
from pathlib import Path

from eopipe.chips.chip_places import ChipPlaces
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.inspection.check_store import find_errors
from eopipe.inspection.contact_sheet import write_contact_sheet
from eopipe.inspection.describe_store import describe_store, store_table
from eopipe.inspection.export_store import export_map, export_store
from eopipe.publish import is_draft, publish
from eopipe.text_table import message_line
from eopipe.tiles.store import CHIP_SET, Tiles


def tiles(argv: list[str]) -> int:
    """Describe stores of tiles or labels, check them, draw them, or export one."""
    arguments = _parser().parse_args(argv)
    if arguments.target and arguments.action != "export":
        raise UsageError(
            f"tiles {arguments.action} takes one path, not also {arguments.target}; only export has a target"
        )
    if arguments.map and not arguments.chip:
        raise UsageError("--map needs --chip, the id of the chip whose part of the map is written")
    if arguments.chip and arguments.action != "export":
        raise UsageError(f"tiles {arguments.action} has no --chip; only export has")
    stores = open_stores(arguments.path)
    if arguments.chip:
        return _export_chip(stores, arguments)
    if arguments.action == "export":
        return _export(stores, arguments.path, arguments.target or arguments.out)
    if arguments.action == "plot":
        return _plot(stores, arguments.path, arguments.out)
    return _check(stores) if arguments.action == "check" else _info(stores)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eopipe tiles", description=tiles.__doc__)
    parser.add_argument(
        "action",
        choices=("info", "check", "plot", "export"),
        help="info: print properties; check: read every chunk and report errors; plot: write a contact sheet as PNG; "
        "export: write the pixels of a store as a cloud-optimised GeoTIFF",
    )
    parser.add_argument("path", type=Path, help="a store of tiles or labels, or a folder with stores")
    parser.add_argument("target", type=Path, nargs="?", help="export: the GeoTIFF [PATH with the suffix .tif]")
    parser.add_argument("--chip", metavar="ID", help="export: only this chip of a chip set, on its own grid")
    parser.add_argument("--map", type=Path, help="export of a chip: its pixels in a map of its store, not in the store")
    parser.add_argument("--out", type=Path, help="PNG of the contact sheet [PATH with the suffix .png]")
    return parser


def open_stores(path: Path) -> list[Tiles]:
    """The store at a path, or all stores below a folder, by name; of several cells the group of each.

    Raises BadInputError if there are none.
    """
    if not path.is_dir():
        raise BadInputError(f"the folder {path} does not exist; give a store or a folder with stores")
    if (path / "zarr.json").is_file():
        return _parts(path)
    folders = sorted(file.parent for file in path.rglob("*.zarr/zarr.json"))
    stores = [folder for folder in folders if not any(is_draft(part) for part in folder.relative_to(path).parts)]
    if not stores:
        raise BadInputError(f"{path} contains no store; eopipe preprocess, composite and label write stores")
    return [part for folder in stores for part in _parts(folder)]


def _parts(path: Path) -> list[Tiles]:
    return [part.alone() for part in Tiles(path, is_alone=True).parts]


def _info(stores: list[Tiles]) -> int:
    print("\n".join(describe_store(stores[0]) if len(stores) == 1 else store_table(stores)))
    return 0


def _check(stores: list[Tiles]) -> int:
    """Check every store and print all errors of each."""
    damaged = 0
    for store in stores:
        errors = find_errors(store)
        damaged += bool(errors)
        for error in errors:
            print(message_line("error", f"{store.path}: {error}"), file=sys.stderr)
        if not errors:
            print(f"{store.path} is intact: every chunk decodes, masks and counts of files agree")
    return IntegrityError.code if damaged else 0


def _export(stores: list[Tiles], path: Path, out: Path | None) -> int:
    if len(stores) > 1:
        raise BadInputError(f"{path} contains {len(stores)} stores; export one at a time, such as {stores[0].path}")
    target = out or path.resolve().with_suffix(".tif")
    bands = export_store(target, stores[0])
    print(f"wrote {out or target.name}: {', '.join(bands)}")
    return 0


def _export_chip(stores: list[Tiles], arguments: argparse.Namespace) -> int:
    packed = [store for store in stores if CHIP_SET in store.attributes]
    rows = [(store, row) for store in packed for row in ChipPlaces.of([store]).rows if row["id"] == arguments.chip]  # type: ignore[union-attr]
    if not rows:
        raise BadInputError(f"{arguments.path} has no chip {arguments.chip}; chips.json of the chip set lists them")
    if len(rows) > 1:
        names = " and ".join(str(store.path) for store, _ in rows)
        raise BadInputError(f"{names} have a chip {arguments.chip}: give the folder of the tiles, or of the labels")
    (store, row), target = rows[0], arguments.target or arguments.out
    target = target or Path(f"{arguments.chip.replace('/', '-')}.tif")
    bands = export_map(target, arguments.map, row) if arguments.map else export_store(target, store, row)
    print(f"wrote {target}: {', '.join(bands)}")
    return 0


def _plot(stores: list[Tiles], path: Path, out: Path | None) -> int:
    folder = path.resolve()
    target = out or folder.with_name(f"{folder.name.removesuffix('.zarr')}.png")
    with publish(target) as draft:
        width, height = write_contact_sheet(draft, stores, folder.name)
    print(f"wrote {out or target.name}: {width} x {height} pixels")
    return 0
