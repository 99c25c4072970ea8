"""Seeded mutations of everything that eopipe reads: `python tests/fuzz.py --mutations 20000 --seed 1`.

Each reader may accept or refuse a mutation with an error of its own; any other exception, and more than half a minute,
is an uncaught one. The table of uncaught exceptions names each place in the code once, with its shortest example.
"""

import argparse
import copy
import json
import logging
import random
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_documents import DOCUMENTS
from mutations import YAML, Change, json_file, mutated, mutated_bytes
from scenery import Catalog, numbered
from synthetic_run import synthetic_run

from eopipe.errors import EopipeError
from eopipe.publish import publish

# A reader that takes longer hangs, also on a busy machine.
SECONDS = 30
ROOT = Path(__file__).parents[1]


def item_in_search(folder: Path) -> Change:
    """A scene of a static catalog, through the stage search."""
    from eopipe.stages.search import search

    catalog = Catalog(folder / "catalog")
    for number, name in enumerate(("S2A_MSIL2A_20180701T092031_N0500_R093_T34TGS_20180701T110000", "b")):
        properties = {"datetime": f"2018-07-{number + 1:02}T09:20:31Z", "s2:processing_baseline": "05.09"}
        catalog.add(name, shape=(8, 8), driver="GTiff", properties=properties)
    catalog.write()
    item = catalog.items[0] | {"links": [{"rel": "license", "href": "https://example.org/licence"}]}
    variants: list[dict[str, Any]] = [
        {},
        {"bbox": (14.0, 45.0, 16.0, 47.0)},
        {"best": 1, "per": "month"},
        {"group": "solar-day", "best": 1},
        {"datetime": "2018-01-01/2018-12-31"},
        {"max_cloud": 50.0, "on_missing": "skip"},
        {"crs": "EPSG:32635", "resolution": 10.0},
        {"ids": ("b",)},
    ]
    outputs = {name: folder / f"out/{name}" for name in ("items", "grid", "selection")}

    def change(dice: random.Random) -> Callable[[], Any]:
        value, options = mutated(item, dice), dice.choice(variants)
        (catalog.root / "s0/item.json").write_text(json.dumps(value))
        return lambda: search(**outputs, catalog=catalog.root, assets=("blue", "red", "scl"), **options)

    return change


def item_in_bands(folder: Path) -> Change:
    """A fetched scene, as preprocess, label and the report read it."""
    from eopipe.reporting.data_tables import citations, credit_lines, item_date, licences
    from eopipe.scenes.item import asset_projection, bands, read_item

    item = json.loads(next((ROOT / "sample/sentinel-2-l2a-romania/S2_ROMANIA_20180701").glob("*.json")).read_text())
    path = folder / "item.json"

    def read() -> None:
        scene = read_item(path)
        bands(folder, scene, ("blue", "red", "scl"), 0.0)
        asset_projection(scene, "blue")
        _ = licences([scene]), citations([scene]), credit_lines([scene]), item_date(scene)

    return json_file(path, item, read)


def config_values(folder: Path) -> Change:
    """The values of a config."""
    import yaml

    from eopipe.config import check

    base = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    full = json.loads(json.dumps(check(copy.deepcopy(base)), default=str))

    def change(dice: random.Random) -> Callable[[], Any]:
        value = mutated(dice.choice((base, full)), dice)
        return lambda: check(value)

    return change


def config_text(folder: Path) -> Change:
    """The text of a config."""
    from eopipe.config import load

    text = (ROOT / "config/config.yaml").read_text()

    def change(dice: random.Random) -> Callable[[], Any]:
        letters = list(text)
        for _ in range(dice.choice((1, 2, 5))):
            letters[dice.randrange(len(letters))] = dice.choice((*YAML, "1e999", "\n", "  ", "? ", "[" * 2000))
        path = folder / "config.yaml"
        path.write_bytes("".join(letters).encode(dice.choice(("utf-8", "latin-1")), "replace"))
        return lambda: load(path)

    return change


def store(folder: Path) -> Change:
    """The metadata of a tile store."""
    import numpy as np
    from builders import write_store

    from eopipe.tiles.layout import Layout
    from eopipe.tiles.store import Tiles

    target, image = folder / "a.zarr", np.ones((2, 16, 16), np.uint16)
    write_store(target, ("red", "blue"), {"image": image}, layout=Layout(16, 16), scaling=(0.5, 0.0))
    names = ("zarr.json", "image/zarr.json", "valid/zarr.json")
    values = {name: json.loads((target / name).read_text()) for name in names}

    def read() -> None:
        tiles = Tiles(target)
        _ = tiles.scene, tiles.names, tiles.grid, tiles.shape, tiles.scaling
        tiles.read("valid", slice(0, 4), slice(0, 4))
        tiles.physical(("red",), slice(0, 8), slice(0, 8))

    def change(dice: random.Random) -> Callable[[], Any]:
        for name, value in values.items():
            (target / name).write_text(json.dumps(value))
        name = dice.choice(names)
        (target / name).write_text(json.dumps(mutated(values[name], dice)))
        return read

    return change


def cells(folder: Path) -> Change:
    """The metadata of a tile store over two UTM zones, and its grid file."""
    from eopipe.tiles.cells import Frame, read_frame
    from eopipe.tiles.grid import make_grid
    from eopipe.tiles.layout import Layout, crop_cell
    from eopipe.tiles.store import Tiles, add_array, new_cell_stores

    grids = [make_grid((0, 0, 160, 160), crs, 10.0, (0, 0)) for crs in ("EPSG:32632", "EPSG:32633")]
    target, layout, frame, path = folder / "a.zarr", Layout(16, 16), Frame.of_grids(grids), folder / "grid.json"
    parts = [(cell, *crop_cell(frame, cell, [(slice(0, 16), slice(0, 16))], layout)) for cell in frame.cells]
    with new_cell_stores(target, frame, ("red",), "a", {}, parts) as (_, groups):
        for group in groups:
            add_array(group, "valid", (16, 16), "uint8", layout)[:] = 1
    names = ("zarr.json", "utm32n/zarr.json", "utm33n/zarr.json", "utm33n/valid/zarr.json")
    values = {target / name: json.loads((target / name).read_text()) for name in names} | {path: frame.json()}

    def read() -> None:
        read_frame(path)
        tiles = Tiles(target)
        _ = tiles.scene, tiles.names, tiles.shape, [part.stored_grid for part in tiles.parts]
        left = frame.cells[1].column
        tiles.read("valid", slice(0, 4), slice(0, 4))
        tiles.read("valid", slice(0, 4), slice(left, left + 4))

    def change(dice: random.Random) -> Callable[[], Any]:
        for file, value in values.items():
            file.write_text(json.dumps(value))
        file = dice.choice(list(values))
        file.write_text(json.dumps(mutated(values[file], dice)))
        return read

    return change


def model(folder: Path) -> Change:
    """The item of a model."""
    from builders import describe_model, save_model

    from eopipe.models.model_folder import model_id, read_trained_model, weights_file

    trained = describe_model("segmentation", ("bare", "forest"), ("red", "blue"), chip=16)
    save_model(folder / "model", trained, settings={"epochs": 2})
    path = folder / "model/model.json"
    item = json.loads(path.read_text())

    def read() -> None:
        read_trained_model(path.parent)
        model_id(path.parent)
        weights_file(path.parent)

    def change(dice: random.Random) -> Callable[[], Any]:
        path.write_text(json.dumps(mutated(item, dice)))
        return read

    return change


def crate(folder: Path) -> Change:
    """The metadata of a crate."""
    from eopipe.provenance.crate_reader import crate_damages, read_crate

    path = synthetic_run(folder, 2).crate(folder / "crate") / "ro-crate-metadata.json"
    value = json.loads(path.read_text())

    def read() -> None:
        run_crate = read_crate(path.parent)
        _ = list(run_crate.data_entities()), run_crate.paths, run_crate.commits, run_crate.config
        crate_damages(path.parent)

    def change(dice: random.Random) -> Callable[[], Any]:
        path.write_text(json.dumps(mutated(value, dice)))
        return read

    return change


def run_records(folder: Path) -> Change:
    """The run records of jobs, as crate, report and verify read them."""
    from eopipe.provenance.jobs import read_jobs
    from eopipe.verify import scan

    synthetic_run(folder, 2)
    records = sorted((folder / "records").iterdir())
    values = [json.loads(path.read_text()) for path in records]

    def read() -> None:
        for job in read_jobs(records):
            _ = job.title, job.error, job.command, job.settings
        scan(folder / "records", 1)

    def change(dice: random.Random) -> Callable[[], Any]:
        for path, value in zip(records, values, strict=True):
            path.write_text(json.dumps(value))
        number = dice.randrange(len(records))
        records[number].write_text(json.dumps(mutated(values[number], dice)))
        return read

    return change


def grid(folder: Path) -> Change:
    """The grid of a run."""
    from eopipe.tiles.cells import read_frame
    from eopipe.tiles.ground import pixel_metres

    path = folder / "grid.json"
    value = {"crs": "EPSG:32633", "shape": [64, 48], "transform": [10.0, 0.0, 500000.0, 0.0, -10.0, 5100000.0]}
    return json_file(path, value, lambda: [pixel_metres(cell.grid) for cell in read_frame(path).cells])


def manifest(folder: Path) -> Change:
    """The manifest of a published folder."""
    from eopipe.publish import verify

    with publish(folder / "results", folder=True) as draft:
        for name in ("a", "b"):
            (draft / name).write_text(name)
    path = folder / "results/manifest.json"
    return json_file(path, json.loads(path.read_text()), lambda: verify(path.parent))


def status(folder: Path) -> Change:
    """Why a training ended."""
    from eopipe.launch.failures import Failure, read_failure, record_failure

    path = folder / "status.json"
    record_failure(path, Failure("diverged", 7, "the loss is not finite", step=3, token=1))

    def read() -> None:
        if failure := read_failure(path):
            failure.error()

    return json_file(path, json.loads(path.read_text()), read)


def tiff(folder: Path) -> Change:
    """The bytes of a GeoTIFF, of which a window is fetched."""
    from scenery import write_raster

    from eopipe.fetch.cog_window import write_window
    from eopipe.fetch.range_reader import LocalRangeReader
    from eopipe.tiles.grid import make_grid

    path = write_raster(folder / "red.tif", numbered((160, 160)))
    content, area = path.read_bytes(), make_grid((500200.0, 5099000.0, 500600.0, 5099500.0), "EPSG:32633", 10.0, (0, 0))

    def change(dice: random.Random) -> Callable[[], Any]:
        path.write_bytes(mutated_bytes(content, dice))
        return lambda: write_window(LocalRangeReader(path), [area], folder / "window.tif", "red")

    return change


def windows(folder: Path) -> Change:
    """A list of windows of an image, and their headers."""
    from scenery import write_raster

    from eopipe.chips.chip_files import chip_windows, read_header, read_mask

    for name in ("image", "mask"):
        write_raster(folder / f"{name}.tif", numbered((16, 16)))
    window = {"image": "image.tif", "window": [2, 3, 8, 5], "mask": "mask.tif"}
    rows = [{"id": "a"} | window, {"id": "b"} | window]
    path = folder / "windows.json"
    return json_file(path, rows, lambda: [(read_header(chip), read_mask(chip)) for chip in chip_windows(path)])


READERS: dict[str, tuple[int, Callable[[Path], Change]]] = {
    # The share of each reader in all mutations, in percent.
    "item in search": (15, item_in_search),
    "item in bands": (20, item_in_bands),
    "config values": (8, config_values),
    "config text": (5, config_text),
    "store": (9, store),
    "cells": (5, cells),
    "model": (9, model),
    "crate": (6, crate),
    "run records": (8, run_records),
    "grid": (4, grid),
    "manifest": (3, manifest),
    "status": (3, status),
    "TIFF": (5, tiff),
    "windows": (8, windows),
} | DOCUMENTS


class TooSlowError(Exception):
    """A reader took too long."""


@dataclass
class Tally:
    """What became of mutations; of uncaught exceptions, by their places, how many and the shortest example."""

    counts: Counter[str] = field(default_factory=Counter)
    uncaught: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, error: BaseException) -> None:
        """Count an uncaught exception."""
        self.counts["uncaught"] += 1
        frames = traceback.extract_tb(error.__traceback__)
        package = str(ROOT / "eopipe")
        frame = next((frame for frame in reversed(frames) if frame.filename.startswith(package)), frames[-1])
        place = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}"
        count, shortest = self.uncaught.get(place, (0, ""))
        text = str(error)[:200]
        self.uncaught[place] = (count + 1, min(text, shortest, key=len) if shortest else text)


def fuzz(name: str, mutations: int, seed: int, folder: Path) -> Tally:
    """Let one reader read mutations; the same seed gives the same ones."""
    tally, dice = Tally(), random.Random(f"{seed} {name}")
    change = READERS[name][1](folder)
    with _quiet():
        for _ in range(mutations):
            read = change(dice)
            tally.counts["mutations"] += 1
            try:
                with _limit():
                    read()
                tally.counts["accepted"] += 1
            except EopipeError:
                tally.counts["refused"] += 1
            except Exception as error:  # noqa: BLE001 - it is what is looked for
                tally.add(error)
    return tally


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and log lines, as there are thousands; a full disk would be one of this machine."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError(f"took more than {SECONDS} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def main() -> int:
    """Print a table of all readers, and each uncaught exception."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=READERS, nargs="*", default=list(READERS))
    arguments = parser.parse_args()
    total = 0
    for name in arguments.only:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        tally = fuzz(name, arguments.mutations * READERS[name][0] // 100, arguments.seed, folder)
        shutil.rmtree(folder)
        total += tally.counts["uncaught"]
        row = ("mutations", "accepted", "refused", "uncaught")
        print(f"{name:16}", *(f"{key} {tally.counts[key]:6}" for key in row), flush=True)
        for place, (count, text) in sorted(tally.uncaught.items()):
            print(f"    {count} x {place}: {text!r}", flush=True)
    print(f"{total} uncaught exceptions")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
