"""Readers of documents of strangers (GeoParquet, Zarr, chip sets) and of stages, for `fuzz.py`."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mutations import Change, json_file, mutated, mutated_bytes

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

    from eopipe.chips.assign import assign_splits
    from eopipe.chips.chip_files import chip_pairs
    from eopipe.chips.chip_places import ChipPlaces, read_index
    from eopipe.chips.chip_set import ImportOptions, write_chip_set
    from eopipe.chips.chip_table import ChipTable
    from eopipe.chips.splits import SplitPlan, SplitRequest
    from eopipe.inspection.tiles_command import describe_store
    from eopipe.labels.kinds import Legend
    from eopipe.reporting.run_data import describe_places
    from eopipe.reporting.split_maps import outlines_of
    from eopipe.stac.write import extent_of
    from eopipe.tiles.store import Tiles

    write_pairs(folder, [(8, 8)] * 4)
    chips = chip_pairs(str(folder / "S2/*_S2.tif"), str(folder / "labels/*_label.tif"))
    index = write_chip_set(folder / "set", chips, Legend(("land", "water", "snow")), ImportOptions(group="^."))
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
        table, request = ChipTable.of_set(places), SplitRequest((), (), 0.0, attribute="id", block_km=100.0)
        for plan in splits:
            assign_splits(table, places.plan(plan), request)
        _ = places.corners(0), places.sizes(0), table.name(0), outlines_of(places, places.samples)
        describe_places(places, table.ground.pixel_m)

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


def stage_documents(folder: Path) -> Change:
    """The split, statistics, calibration, metrics and cells that stages wrote, as later stages and `run` read them."""
    from eopipe.chips.chips import covered_pixels
    from eopipe.chips.splits import read_split
    from eopipe.chips.statistics import band_normaliser, label_scaling, read_statistics
    from eopipe.evaluation.metrics_document import read_metrics
    from eopipe.inference.temperature import read_calibration
    from eopipe.reporting.wording import calibration_text, scored_size, split_warnings
    from eopipe.run.project import summary
    from eopipe.tiles.cells import Frame, read_frame
    from eopipe.tiles.grid import make_grid

    def scores(**more: Any) -> dict[str, Any]:
        row = {"iou": 0.8, "precision": 0.9, "recall": 0.9, "f1": 0.9, "pixels": 9}
        table = {"confusion": [[8, 0], [1, 0]], "per_class": {"a": row, "b": row}}
        return {"accuracy": 0.9, "miou": 0.8, "f1_macro": 0.9, "kappa": 0.8} | table | more

    interval, audit = [0.01, 0.2], {"kind": "place", "example": "a place", "splits": "train-test", "share": 0.1}
    probabilities = {"ece": 0.1, "brier": 0.1, "nll": 0.2, "confidence": 0.9, "accuracy": 0.9, "description": "none"}
    probabilities |= {"intervals": {"ece": interval, "brier": interval, "nll": None, "level": 0.95, "pieces": 9}}
    probabilities |= {"bins": [{"samples": 9, "confidence": 0.9, "accuracy": 0.9}]}
    of_all = {"classes": ["a", "b"], "maps": 1}
    gains = {key: {"accuracy": interval, "miou": interval} for key in ("gain", "texture_gain", "simple_gain")}
    of_classes = of_all | {"model": scores(), "pixel_baseline": scores(), "texture_baseline": scores()}
    of_classes |= {"majority": scores(**{"class": "a"}), "test_pixels": 9, "calibration": probabilities}
    of_classes |= {"intervals": gains | {"model": gains["gain"]}, "not_mapped": ["b"], "map_pixels": {"a": 9, "b": 0}}
    errors = {"rmse": 1.0, "mae": 0.5, "bias": 0.1, "r2": 0.5}
    keys = ("model", "pixel_baseline", "texture_baseline")
    of_values: dict[str, Any] = of_all | {"task": "regression", "unit": "%", "test_pixels": 9, "range": [0.0, 9.0]}
    of_values |= dict.fromkeys(keys, errors) | {"mean": errors | {"value": 4.0}}
    of_values |= {"intervals": {"gain": {"rmse": interval}}}
    shares = {"f1_micro": 0.8, "f1_macro": 0.7, "subset_accuracy": 0.5, "hamming_loss": 0.1}
    shares |= {"mean_average_precision": None, "per_class": {}}
    of_labels: dict[str, Any] = of_all | {"task": "multilabel", "test_chips": 9} | dict.fromkeys(keys, shares)
    of_labels |= {"majority": shares | {"labels": ["a"]}, "min_share": 0.1, "threshold": 0.5, "examples": []}
    of_labels |= {"cooccurrence": {"truth": [[1]], "predicted": [[1]]}}
    split = {
        "scenes": ["s0", "s1"],
        "classes": ["a", "b"],
        "chip": 8,
        "plan": {"method": "blocks", "min_valid": 0.5},
        "audit": {"gap_pixels": {"train-test": 4}, "allowed": [audit], "warnings": [audit], "allow": {"place": "no"}},
        "samples": {"train": [[0, 0, 0], [1, 0, 8]], "val": [], "test": [[0, 8, 0]]},
        "pixels": {name: {"a": 1, "b": 2} for name in ("train", "val", "test")},
        "by_scene": False,
        "warnings": ["a sentence"],
    }
    numbers = {"mean": 1.0, "std": 0.5, "count": 9}
    others = {
        "split.json": split,
        "statistics.json": {
            "bands": {"red": numbers, "nir": numbers},
            "pixels": {"s0": 9},
            "samples": "0",
            "labels": numbers,
        },
        "calibration.json": {"temperature": 1.5, "model": "m", "scenes": ["s0"], "summary": "a sentence"},
        "grid.json": Frame.of_grids(
            [make_grid((0, 0, 160, 160), crs, 10.0, (0, 0)) for crs in ("EPSG:32632", "EPSG:32633")]
        ).json(),
    }
    runs = [others | {"metrics.json": metrics} for metrics in (of_classes, of_values, of_labels)]

    def read() -> None:
        summary(str(folder))
        metrics, split = read_metrics(folder / "metrics.json"), read_split(folder / "split.json")
        _ = calibration_text(metrics), scored_size(metrics), split_warnings(split)
        covered_pixels(split.samples["train"][:, 1:], min(split.chip, 16), (slice(0, 16), slice(0, 16)))
        statistics = read_statistics(folder / "statistics.json")
        band_normaliser(statistics, ("red", "nir"))
        label_scaling(statistics, folder / "statistics.json")
        read_calibration(folder / "calibration.json")
        read_frame(folder / "grid.json")

    def change(dice: random.Random) -> Callable[[], Any]:
        documents: dict[str, Any] = dict(dice.choice(runs))
        name = dice.choice(sorted(documents))
        documents[name] = mutated(documents[name], dice)
        for file, value in documents.items():
            (folder / file).write_text(json.dumps(value))
        return read

    return change


def area(folder: Path) -> Change:
    """An area of interest, as `init` and `search` read it."""
    from eopipe.planning.project_draft import ProjectArea, read_area
    from eopipe.tiles.globe import to_crs, unwrap

    path = folder / "area.geojson"
    ring = [[179.5, -17], [-179.5, -17], [-179.5, -16], [179.5, -16], [179.5, -17]]
    polygons = [{"type": "Polygon", "coordinates": [ring]}, {"type": "MultiPolygon", "coordinates": [[ring], [ring]]}]
    features = [{"type": "Feature", "properties": {}, "geometry": geometry} for geometry in polygons]

    def read() -> None:
        place = ProjectArea(read_area(path))
        to_crs(unwrap(place.geometry), place.utm_crs)

    return json_file(path, {"type": "FeatureCollection", "features": features}, read)


def points(folder: Path) -> Change:
    """A table of points with classes and dates, as `label` reads it."""
    from eopipe.labels.vectors import read_features

    path = folder / "points.csv"
    rows = [[10 + n / 7, 45 - n / 9, f"{n % 3:02}", f"2018-0{n % 9 + 1}-11"] for n in range(12)]

    def change(dice: random.Random) -> Callable[[], Any]:
        table = mutated([["longitude", "latitude", "class", "date"], *rows], dice)
        lines = [",".join(map(str, row)) if isinstance(row, list) else str(row) for row in table]
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        return lambda: read_features(path, "class", dates="2018")

    return change


def vectors(folder: Path) -> Change:
    """Vector files of each format with changed bytes, as `label` reads them."""
    import numpy as np
    import pyogrio.raw
    import shapely

    from eopipe.labels.vectors import read_features

    shapes = np.array([shapely.to_wkb(shapely.box(n, 45, n + 1, 46)) for n in range(20)], object)
    columns = {"fields": ["class"], "field_data": [np.array(["a", "b"] * 10)]}
    paths = [folder / f"vectors{suffix}" for suffix in (".gpkg", ".fgb", ".shp", ".geojson")]
    for path in paths:
        pyogrio.raw.write(path, shapes, **columns, crs="EPSG:4326", geometry_type="Polygon")
    contents = {path: path.read_bytes() for path in paths}

    def change(dice: random.Random) -> Callable[[], Any]:
        path = dice.choice(paths)
        path.write_bytes(mutated_bytes(contents[path], dice))
        return lambda: read_features(path, "class")

    return change


def trial_space(folder: Path) -> Change:
    """The sections `trials` and `members` of a config, as each job of a trial or member reads them."""
    from eopipe.config import check
    from eopipe.trial_settings import describe_trainings, training_settings

    space = {
        "width": [8, 16],
        "learning_rate": {"low": 0.001, "high": 0.01, "log": True},
        "seed": {"low": 1, "high": 3},
    }
    space["head"] = {"choices": ["linear", "spectral"], "when": {"architecture": "unet"}}
    members = [{"architecture": "forest"}, {"seed": 3, "width": 8}]
    base = {"search": {"catalog": "sample"}, "label": {"source": "l.tif", "classes": ["a", "b"]}}
    trials = base | {"trials": {"space": space, "sampler": "halton", "count": 4, "rungs": [0.25, 0.5], "keep": 0.5}}

    def change(dice: random.Random) -> Callable[[], Any]:
        config = mutated(dice.choice((trials, base | {"members": members})), dice)

        def read() -> None:
            checked = check(config)
            training_settings(checked), describe_trainings(checked)

        return read

    return change


DOCUMENTS: dict[str, tuple[int, Callable[[Path], Change]]] = {
    # The share of each reader in all mutations, in percent, as in `fuzz.py`.
    "GeoParquet": (8, geoparquet),
    "Zarr asset": (10, zarr_asset),
    "chip set": (12, chip_set),
    "stages": (12, stage_documents),
    "area": (6, area),
    "points": (6, points),
    "vectors": (6, vectors),
    "trial space": (6, trial_space),
}
