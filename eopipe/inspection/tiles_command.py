"""`eopipe tiles`: stores as text, checked, and as a contact sheet."""

import argparse
import sys
from pathlib import Path

from eopipe.errors import BadInputError, IntegrityError
from eopipe.inspection.check_store import faults
from eopipe.inspection.contact_sheet import write_contact_sheet
from eopipe.inspection.describe_store import about, table
from eopipe.publish import is_draft, publish
from eopipe.tiles.store import Tiles


def tiles(words: list[str]) -> int:
    """Tell what is in stores, check them, or draw them."""
    given = _parser().parse_args(words)
    found = stores(given.path)
    if given.what == "plot":
        return _plot(found, given.path, given.out)
    return _check(found) if given.what == "check" else _info(found)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="eopipe tiles", description=tiles.__doc__)
    made.add_argument("what", choices=("info", "check", "plot"))
    made.add_argument("path", type=Path, help="a store of tiles or labels, or a folder with stores")
    made.add_argument("--out", type=Path, help="PNG of the contact sheet; PATH with .png if not given")
    return made


def stores(path: Path) -> list[Tiles]:
    """The store at a path, or all stores below a folder, by name; raises BadInputError if there is none."""
    if not path.is_dir():
        raise BadInputError(f"there is no folder {path}; give a store or a folder with stores")
    if (path / "zarr.json").is_file():
        return [Tiles(path)]
    below = sorted(found.parent for found in path.rglob("*.zarr/zarr.json"))
    made = [one for one in below if not any(is_draft(part) for part in one.relative_to(path).parts)]
    if not made:
        raise BadInputError(f"{path} holds no store; eopipe preprocess, composite and label make such")
    return [Tiles(one) for one in made]


def _info(found: list[Tiles]) -> int:
    print("\n".join(about(found[0]) if len(found) == 1 else table(found)))
    return 0


def _check(found: list[Tiles]) -> int:
    """Check every store, and tell all that is wrong with each."""
    broken = 0
    for store in found:
        wrong = faults(store)
        broken += bool(wrong)
        for sentence in wrong:
            print(f"error: {store.path}: {sentence}", file=sys.stderr)
        if not wrong:
            print(f"{store.path} is whole: every chunk decodes, masks and counts of files agree")
    return IntegrityError.code if broken else 0


def _plot(found: list[Tiles], path: Path, out: Path | None) -> int:
    place = path.resolve()
    target = out or place.with_name(f"{place.name.removesuffix('.zarr')}.png")
    with publish(target) as draft:
        width, height = write_contact_sheet(draft, found, place.name)
    print(f"wrote {out or target.name}: {width} x {height} pixels")
    return 0
