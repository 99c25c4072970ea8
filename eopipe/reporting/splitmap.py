"""A split to look at: a map of its places as PNG, and its chips as polygons for a GIS."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import IntArray, ObjectArray, UInt8Array
from eopipe.chips.make_split import SplitResult
from eopipe.chips.splits import SPLITS
from eopipe.reporting.maps import MapContent, MapPanel, write_map
from eopipe.reporting.palette import SPLIT_COLORS
from eopipe.reporting.wording import count, listed, percent, plural

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

TITLES = {"train": "Training", "val": "Validation", "test": "Test"}
NO_SPLIT, LARGEST = "#e9e9e6", 1100
# GeoPackage notes when a layer changed; the same chips are to give the same bytes.
MOMENT = "2000-01-01T00:00:00.000Z"


def draw_split(path: Path, made: SplitResult) -> None:
    """Write a map of the places of train, val and test as PNG; one map for each where scenes are split."""
    step = -(-max(made.grid.shape) // LARGEST)
    names = [name for name in SPLITS if len(made.samples[name])]
    if made.told["by_scene"]:
        panels = [(_caption(made, name), _painted(made, [name], step)) for name in names]
    else:
        panels = [("", _painted(made, names, step))]
    words = [f"{TITLES[name]}, {plural(len(made.samples[name]), 'chip')}" for name in names]
    colors = [SPLIT_COLORS[SPLITS.index(name)] for name in names]
    order = np.full(256, len(names), np.uint8)
    order[[SPLITS.index(name) for name in names]] = np.arange(len(names))
    content = MapContent(
        title="Training, validation and test areas",
        subtitle=_how(made.told),
        credit="   ".join(_balance(made.told, name) for name in names),
        classes=(*words, "in no split"),
        colors=(*colors, NO_SPLIT),
        grid=made.grid,
        step=step,
        panels=[MapPanel(name, order[n], (slice(0, n.shape[0]), slice(0, n.shape[1]))) for name, n in panels],
    )
    write_map(path, content)


def _caption(made: SplitResult, name: str) -> str:
    scenes = np.unique(made.samples[name][:, 0])
    return f"{TITLES[name]}: {plural(len(scenes), 'scene')}"


def _how(told: dict[str, Any]) -> str:
    """The method in words, with the gap that was measured."""
    plan, gap = told["plan"], told["audit"]["gap_pixels"].get("train-test")
    words = [f"Method {plan['method']}" + (f" by {plan['by']}" if plan["method"] == "group" else "")]
    words += [f"fold {plan['fold']} of {plan['folds']} tests"] if plan["folds"] else []
    words += [f"{count(gap)} pixels between training and test"] if gap is not None else []
    leaks = sorted({finding["kind"] for finding in told["audit"]["allowed"]})
    words += [f"leaks that the config allows: {listed(leaks)}"] if leaks else []
    return "; ".join([*words, f"chips of {told['chip']} pixels"]) + "."


def _balance(told: dict[str, Any], name: str) -> str:
    pixels = told["pixels"][name]
    total = max(sum(pixels.values()), 1)
    return f"{TITLES[name]}: {listed([f'{c} {percent(n / total)}' for c, n in pixels.items()])}."


def _painted(made: SplitResult, names: list[str], step: int) -> UInt8Array:
    """Number of the split of every cell (y, x) of `step` pixels; 255 outside the chips."""
    rows, cols = (-(-edge // step) for edge in made.grid.shape)
    found = np.full((rows, cols), 255, np.uint8)
    for name in names:
        for row, col in np.unique(made.samples[name][:, 1:], axis=0).tolist():
            cells = (slice(start // step, -(-(start + made.told["chip"]) // step)) for start in (row, col))
            found[tuple(cells)] = SPLITS.index(name)
    return found


def write_places(path: Path, made: SplitResult) -> None:
    """Write the layer `chips`: a square each, with split, scene, row, column and the pixels of each class."""
    import pyogrio
    import pyogrio.raw

    samples = np.concatenate([made.samples[name] for name in SPLITS])
    pixels = np.concatenate([made.pixels[name] for name in SPLITS])
    split = np.repeat(np.array(SPLITS, object), [len(made.samples[name]) for name in SPLITS])
    told = {
        "split": split,
        "scene": np.array(made.told["scenes"], object)[samples[:, 0]],
        "row": samples[:, 1],
        "column": samples[:, 2],
    } | {f"pixels {name}": pixels[:, number] for number, name in enumerate(made.told["classes"])}
    # As the driver's threads see a global setting only, it is set and taken back.
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": MOMENT})
    try:
        pyogrio.raw.write(
            path,
            _squares(samples, made.told["chip"], made.grid),
            list(told.values()),
            list(told),
            layer="chips",
            driver="GPKG",
            geometry_type="Polygon",
            crs=made.grid.crs.to_wkt() if made.grid.crs else None,
        )
    finally:
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": before})


def _squares(samples: IntArray, chip: int, grid: "GeoBox") -> ObjectArray:
    """Well-known binary of the chips (n,) in the grid's CRS."""
    from shapely import box, to_wkb

    top, left = samples[:, 1], samples[:, 2]
    affine = grid.affine
    x = [affine.c + affine.a * (left + part) for part in (0, chip)]
    y = [affine.f + affine.e * (top + part) for part in (chip, 0)]
    return np.asarray(to_wkb(box(x[0], y[0], x[1], y[1])), object)
