"""Readers of documents of strangers (GeoParquet, Zarr, chip sets) and of stages, for `fuzz.py`."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutations import Change, mutated

EAST, NORTH, STEP = 500000.0, 5100000.0, 10.0
PLACE = {"proj:code": "EPSG:32633", "spatial:transform": [STEP, 0.0, EAST, 0.0, -STEP, NORTH]}


def geoparquet(folder: Path) -> Change:
    """Rows of a catalog in STAC-GeoParquet, and the collections in its metadata, through the stage search."""
    import pyarrow as pa
    import shapely
    from pyarrow import parquet

    from eopipe.stages.search import search

    row: dict[str, Any] = {
        "id": "a",
        "type": "Feature",
        "stac_version": "1.0.0",
        "geometry": shapely.box(15, 46, 15.1, 46.1).wkb,
        "bbox": {"xmin": 15.0, "ymin": 46.0, "xmax": 15.1, "ymax": 46.1},
        "links": [{"href": "x", "rel": "license"}],
        "collection": "c",
        "datetime": "2023-01-01T00:00:00Z",
        "s2:processing_baseline": "05.09",
        "assets": {"red": {"href": "red.tif"}},
        "proj:code": "EPSG:32633",
        "proj:shape": [10, 10],
        "proj:transform": PLACE["spatial:transform"],
    }
    collections = {
        "c": {"license": "CC-BY-4.0", "links": [{"rel": "license", "href": "y"}], "providers": [{"name": "p"}]}
    }
    outputs = {name: folder / f"out/{name}" for name in ("items", "grid", "selection")}
    variants: list[dict[str, Any]] = [{}, {"bbox": (14.0, 45.0, 16.0, 47.0)}, {"datetime": "2022-01-01/2024-12-31"}]
    path = folder / "x.parquet"

    def change(dice: random.Random) -> Callable[[], Any]:
        options = dice.choice(variants)
        while True:
            rows = mutated([row, row | {"id": "b"}], dice) if dice.random() < 0.75 else [row]
            stated = mutated({"collections": collections}, dice) if dice.random() < 0.4 else {}
            columns = {key: None for each in rows if isinstance(each, dict) for key in each}
            try:
                table = pa.Table.from_pydict({key: [each.get(key) for each in rows] for key in columns})
                table = table.replace_schema_metadata({"stac-geoparquet": json.dumps(stated)})
                parquet.write_table(table, path)
            except (pa.lib.ArrowException, AttributeError, TypeError, OverflowError, ValueError):
                # Parquet has no column for it.
                continue
            return lambda: search(**outputs, catalog=path, assets=("red",), **options)

    return change


def zarr_asset(folder: Path) -> Change:
    """The metadata, attributes and coordinate chunks of Zarr assets of versions 2 and 3, through the stage fetch."""
    import numpy as np
    import zarr

    from eopipe.stages.fetch import fetch

    names = []
    for version in (2, 3):
        for kind, attributes in (("stated", PLACE), ("axes", {"grid_mapping": "crs"})):
            root = folder / f"{kind}{version}.zarr"
            group = zarr.open_group(root, mode="w", zarr_format=version, attributes={"proj:code": "EPSG:32633"})
            axes = {"x": EAST + STEP * np.arange(16), "y": NORTH - STEP * np.arange(16)}
            arrays: dict[str, Any] = axes | {"red": np.ones((16, 16), np.uint16), "crs": np.zeros((), np.int8)}
            for name, values in arrays.items():
                of_name = {"red": dict(attributes), "crs": {"crs_wkt": "EPSG:32633"}}.get(name, {})
                axis_names = {"red": ["y", "x"], "crs": []}.get(name, [name])
                options = {"dimension_names": axis_names} if version == 3 else {}
                of_name |= {} if version == 3 else {"_ARRAY_DIMENSIONS": axis_names}
                array = group.create_array(name, shape=values.shape, dtype=values.dtype, attributes=of_name, **options)
                array[...] = values
            names.append(root.name)
    pristine = folder / "pristine"
    pristine.mkdir()
    for name in names:
        shutil.move(folder / name, pristine / name)
    work, item = folder / "work", folder / "work/i.geojson"

    def change(dice: random.Random) -> Callable[[], Any]:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        name = dice.choice(names)
        shutil.copytree(pristine / name, work / name)
        files = sorted(path for path in (work / name).rglob("*") if path.is_file())
        path = dice.choice(files)
        if path.name in ("zarr.json", ".zattrs", ".zarray", ".zgroup"):
            path.write_text(json.dumps(mutated(json.loads(path.read_text()), dice)))
        else:
            content = bytearray(path.read_bytes())
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            path.write_bytes(content[: dice.choice((len(content), len(content) // 2))])
        asset = {"href": f"{name}/red", "type": "application/vnd.zarr"}
        document = {"type": "Feature", "stac_version": "1.1.0", "id": "Z", "geometry": None, "links": []}
        document |= {"properties": {"datetime": "2023-08-01T10:00:00Z"}, "assets": {"red": asset}}
        item.write_text(json.dumps(document))
        return lambda: fetch(item, work / "scene", catalog=work)

    return change


def chip_set(folder: Path) -> Change:
    """The index of a chip set, and attributes and rows of the index in its stores, through check, split and plan."""
    import numpy as np
    import zarr
    from chip_files import write_pairs

    from eopipe.chips.chip_files import chip_pairs
    from eopipe.chips.chip_places import ChipPlaces, read_index
    from eopipe.chips.chip_set import ImportOptions, import_chips
    from eopipe.chips.chip_set_split import split_chip_set
    from eopipe.chips.splits import SplitPlan
    from eopipe.inspection.describe_store import describe_store
    from eopipe.labels.classes import Legend
    from eopipe.reporting.chip_set_maps import describe_places, outlines_of
    from eopipe.stac.write import extent_of
    from eopipe.tiles.store import Tiles

    write_pairs(folder, [(8, 8)] * 4)
    chips = chip_pairs(str(folder / "S2/*_S2.tif"), str(folder / "labels/*_label.tif"))
    index = import_chips(folder / "set", chips, Legend(("land", "water", "snow")), ImportOptions(group="^."))
    store, file = folder / "set/tiles/chips-0000.zarr", folder / "set/chips.json"
    metadata, rows = json.loads((store / "zarr.json").read_text()), index["chips"]
    sizes = ((0.5, 0.25, 0.25), 16, 16, 1, 16, 0, 0, 1)
    splits = [SplitPlan("random", *sizes), SplitPlan("blocks", *sizes), SplitPlan("group", *sizes, by="column")]

    def read() -> None:
        read_index(folder / "set")
        tiles = Tiles(store)
        describe_store(tiles)
        extent_of([tiles.grid], [tiles.attributes])
        places = ChipPlaces.of([tiles])
        if places is None:
            return
        for plan in splits:
            split_chip_set(places, places.samples, places.plan(plan), 100.0, None, "id")
        _ = places.corners(0), places.sizes(0), places.id_of(places.samples[0]), outlines_of(places, places.samples)
        describe_places(places, places.pixel_m)

    def change(dice: random.Random) -> Callable[[], Any]:
        documents = [metadata, rows, index]
        number = dice.randrange(3)
        documents[number] = mutated(documents[number], dice)
        (store / "zarr.json").write_text(json.dumps(documents[0]))
        texts = [json.dumps(row) for row in documents[1]]
        shutil.rmtree(store / "chips", ignore_errors=True)
        array = zarr.create_array(store / "chips", shape=(len(texts),), chunks=(max(len(texts), 1),), dtype="string")
        array[:] = np.array(texts, object)
        file.write_text(json.dumps(documents[2]))
        return read

    return change


DOCUMENTS: dict[str, tuple[int, Callable[[Path], Change]]] = {
    # The share of each reader in all mutations, in percent, as in `fuzz.py`.
    "GeoParquet": (8, geoparquet),
    "Zarr asset": (10, zarr_asset),
    "chip set": (12, chip_set),
}
