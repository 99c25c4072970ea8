"""Makers of what stages read: grids, stores of tiles and labels, splits, models with random weights, and their maps."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from affine import Affine
from odc.geo.geobox import GeoBox

from eopipe.arrays import AnyArray, UInt16Array
from eopipe.chips.chips import Normaliser
from eopipe.cli import main
from eopipe.publish import publish
from eopipe.text_files import read_json, write_json
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, add_array, new_store

if TYPE_CHECKING:
    from eopipe.models import Architecture
    from eopipe.models.model_folder import TrainedModel

BANDS, LAYOUT = ("red", "nir"), Layout(32, 64)
# What a model of these tasks has beside the classes.
OF_TASKS: dict[str, dict[str, Any]] = {
    "regression": {"target": (10.0, 4.0), "unit": "m"},
    "multilabel": {"min_share": 0.3},
}


def stage(*arguments: object) -> int:
    """Run a stage; its exit code."""
    return main([str(word) for word in arguments])


def grid_of(
    shape: tuple[int, ...], step: float = 10.0, left: float = 500000.0, top: float = 5000000.0, crs: str = "EPSG:32633"
) -> GeoBox:
    """The grid of arrays of this shape (…, y, x)."""
    return GeoBox(shape[-2:], Affine(step, 0.0, left, 0.0, -step, top), crs)


def noise(*shape: int, seed: int = 0) -> UInt16Array:
    """Pixels (…, y, x) of reflectances that a scene may have."""
    return np.random.default_rng(seed).integers(500, 4000, shape).astype(np.uint16)


def write_store(
    path: Path,
    names: tuple[str, ...],
    arrays: dict[str, AnyArray],
    grid: GeoBox | None = None,
    *,
    scene: str | None = None,
    layout: Layout = LAYOUT,
    scaling: tuple[float, float] = (1e-4, 0.0),
    window: Any = None,
    **attributes: Any,
) -> Path:
    """A store of these arrays, of which all pixels are valid where no array says it; a mask is stored as bytes."""
    shape = next(iter(arrays.values())).shape[-2:]
    every = arrays if "valid" in arrays else arrays | {"valid": np.ones(shape, np.uint8)}
    scene = (path.stem if "image" in arrays else "") if scene is None else scene
    with new_store(path, grid or grid_of(shape), names, scene, attributes, window) as group:
        for name, values in every.items():
            more = dict(zip(("scale_factor", "add_offset"), scaling, strict=True)) if name == "image" else {}
            dtype = np.dtype(np.uint8) if values.dtype == bool else values.dtype
            add_array(group, name, values.shape, dtype, layout, **more)[:] = values
    return path


def write_tiles(
    path: Path,
    image: AnyArray,
    valid: AnyArray | None = None,
    names: tuple[str, ...] = BANDS,
    *,
    day: str = "2020-07-01",
    **options: Any,
) -> Path:
    """The tiles of a scene of this day; `options` are those of `write_store`."""
    attributes = {"datetime": f"{day}T00:00:00Z", "collection": "test"} | options
    return write_store(path, names, {"image": image} | ({} if valid is None else {"valid": valid}), **attributes)


def write_features(path: Path, *features: tuple[Any, dict[str, Any]], crs: str = "") -> Path:
    """GeoJSON of shapes, or of their geometries as GeoJSON has them, with the properties of each."""
    rows = [
        {"type": "Feature", "properties": properties, "geometry": getattr(shape, "__geo_interface__", shape)}
        for shape, properties in features
    ]
    named = {"crs": {"type": "name", "properties": {"name": f"urn:ogc:def:crs:{crs.replace(':', '::')}"}}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": rows} | (named if crs else {})))
    return path


def write_scenes(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Tiles s0, s1, … of 80 x 72 pixels; one corner is valid in the first alone, and the one below it in none."""
    rng, shape, stores = np.random.default_rng(seed), (80, 72), []
    for number in range(count):
        valid = rng.random(shape) < 0.8
        valid[:16, :16] = number == 0
        valid[16:32, :16] = False
        image = rng.integers(500, 4000, (2, *shape)).astype(np.uint16)
        stores.append(write_tiles(folder / f"s{number}.zarr", image, valid))
    return stores


def write_labels(path: Path, label: AnyArray, names: tuple[str, ...], **options: Any) -> Path:
    """Labels of classes, or of finite values in metres; `options` are those of `write_store`."""
    is_value = label.dtype.kind == "f"
    valid = np.isfinite(label) if is_value else label != NO_LABEL
    return write_store(path, names, {"label": label, "valid": valid}, **({"unit": "m"} if is_value else {}) | options)


def west_east(shape: tuple[int, int], chip: int, train: int, val: int = 0) -> dict[str, list[list[int]]]:
    """Chips (image, row, column) of one image: those before a column train, those before another validate."""
    samples: dict[str, list[list[int]]] = {"train": [], "val": [], "test": []}
    for row in range(0, shape[0], chip):
        for col in range(0, shape[1], chip):
            samples["train" if col < train else "val" if col < val else "test"].append([0, row, col])
    return samples


def write_split(
    path: Path, scenes: list[str], classes: tuple[str, ...], chip: int, samples: dict[str, Any], **fields: Any
) -> Path:
    """A split file of these chips that nobody audited, with other fields."""
    split = {"scenes": scenes, "classes": [*classes], "chip": chip, "samples": samples, "audit": {"gap_pixels": {}}}
    needed = {"plan": {"method": "west-east", "min_valid": 0.5}, "pixels": {"train": {}, "val": {}, "test": {}}}
    write_json(path, split | needed | fields)
    return path


def describe_model(
    task: str,
    classes: tuple[str, ...],
    bands: tuple[str, ...] = BANDS,
    *,
    architecture: "Architecture | None" = None,
    depth: int = 1,
    mean: float = 0.2,
    std: float = 0.1,
    **fields: Any,
) -> "TrainedModel":
    """A model of a task, by default a small U-Net, for bands with this mean and deviation."""
    from eopipe.models import Architecture
    from eopipe.models.model_folder import TrainedModel

    architecture = architecture or Architecture("unet", len(bands), len(classes), 4, depth)
    fields = {"normaliser": Normaliser((mean,) * len(bands), (std,) * len(bands)), "chip": 8} | fields
    return TrainedModel(architecture, bands, classes, task=task, **OF_TASKS.get(task, {}) | fields)


def describe_trial(task: str, classes: tuple[str, ...]) -> "TrainedModel":
    """The model of a trial, of one band; a measured value is not scaled."""
    from eopipe.models import Architecture

    architecture = Architecture("unet", 1, len(classes), 4, 1, ("red",))
    more = {"target": (0.0, 1.0)} if task == "regression" else {}
    return describe_model(task, classes, ("red",), architecture=architecture, mean=0.0, std=1.0, **more)


def save_model(
    path: Path,
    trained: "TrainedModel",
    *,
    seed: int = 1,
    weight: float | None = None,
    weights: Any = None,
    history: Any = (),
    settings: Any = None,
    files: dict[str, str] | None = None,
    **others: Any,
) -> Path:
    """A model folder as train writes it: with random weights, all the same, or these; and with these files."""
    import torch

    from eopipe.models.model_files import copy_files
    from eopipe.models.model_folder import write_model_folder

    torch.manual_seed(seed)
    weights = weights or trained.architecture.build().state_dict()
    if weight is not None:
        weights = {name: torch.full_like(value, weight) for name, value in weights.items()}
    with publish(path, folder=True) as draft:
        for name, text in (files or {}).items():
            (draft / name).write_text(text)
        copy_files(trained.architecture.files, draft)
        write_model_folder(draft, trained, weights, [*history], settings or {}, **others)
    return path


def write_model(path: Path, task: str, classes: tuple[str, ...], *, seed: int = 1, **fields: Any) -> Path:
    """A model folder with random weights; `fields` are those of `describe_model`."""
    return save_model(path, describe_model(task, classes, **fields), seed=seed)


def map_files(folder: Path) -> tuple[Path, Path]:
    """Where `predict_files` writes a map in a folder."""
    return folder / "classes.tif", folder / "probabilities.tif"


def map_options(folder: Path) -> list[object]:
    """The options of both files of a map in a folder."""
    classes, probabilities = map_files(folder)
    return ["--classes", classes, "--probabilities", probabilities]


def predict_files(folder: Path, model: Path, tiles: list[Path], *options: object) -> tuple[Path, Path]:
    """Map tiles; both files of the map."""
    assert stage("predict", "--model", model, "--tiles", *tiles, *map_options(folder), *options) == 0
    return map_files(folder)


def read_bands(path: Path) -> AnyArray:
    """The bands (band, y, x) of a raster."""
    import rasterio

    with rasterio.open(path) as file:
        return np.asarray(file.read())


def write_map(
    path: Path,
    bands: AnyArray,
    grid: GeoBox,
    nodata: float = NO_LABEL,
    names: tuple[str, ...] = (),
    *,
    scale: float = 1.0,
    driver: str = "GTiff",
    **tags: Any,
) -> Path:
    """A raster of bands (band, y, x) with their names and scale, and with tags, as predict writes maps."""
    import rasterio

    count, height, width = bands.shape
    profile = {"count": count, "height": height, "width": width, "dtype": bands.dtype, "nodata": nodata}
    with rasterio.open(path, "w", driver=driver, crs=grid.crs.to_wkt(), transform=grid.affine, **profile) as file:
        file.write(bands)
        file.descriptions, file.scales = names or (None,) * count, (scale,) * count
        file.update_tags(**tags)
    return path


def predict(folder: Path, model: Path, tiles: list[Path], *options: object) -> tuple[AnyArray, AnyArray]:
    """Map tiles; the first band (y, x) of the first file, all bands (band, y, x) of the second."""
    classes, probabilities = predict_files(folder, model, tiles, *options)
    return read_bands(classes)[0], read_bands(probabilities)


def evaluate(folder: Path, *options: object) -> dict[str, Any]:
    """The scores of a map, which are written into a folder."""
    assert stage("evaluate", *options, "--metrics", folder / "metrics.json") == 0
    metrics: dict[str, Any] = read_json(folder / "metrics.json")
    return metrics


def store_files(shape: tuple[int, int], layout: Layout, arrays: int, *, has_image: bool = True) -> int:
    """Number of files of a published store with this number of raster arrays.

    Shards and metadata of each array and of two coordinates, the grid mapping, the group and the manifest; beside
    an image the names of its bands and its time.
    """
    return arrays * (layout.files(shape) + 1) + 2 * 2 + 1 + 2 + (2 + 1 if has_image else 0)
