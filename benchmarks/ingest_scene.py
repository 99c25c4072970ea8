"""The scene that the contestants of `ingest.py` read, and their grids."""

import json
from pathlib import Path
from typing import Any

from landscape import classes, reflectance

FINE, COARSE = ("blue", "green", "red", "nir"), ("re1", "re2", "re3", "nir2", "swir1", "swir2")
BANDS = (*FINE, *COARSE)
EDGE, LEFT, TOP = 10980, 499980.0, 5100000.0
HOME, AWAY = "EPSG:32633", "EPSG:3035"


def build(folder: Path, edge: int, block: int) -> None:
    """Create the scene unless it exists."""
    if (folder / "scene.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate((*BANDS, "scl")):
        _raster(folder / f"{name}.tif", number, name, edge // (1 if name in FINE else 2), block)
    (folder / "scene.json").write_text(json.dumps(_item(edge)))


def _raster(path: Path, seed: int, name: str, edge: int, block: int) -> None:
    import rasterio
    from rasterio.transform import from_origin

    pixels = classes(edge) if name == "scl" else reflectance(edge, seed)
    step = 10.0 * (1 if name in FINE else 2)
    georeference = {"crs": HOME, "transform": from_origin(LEFT, TOP, step, step), "nodata": 0}
    size = {"height": edge, "width": edge, "count": 1, "dtype": pixels.dtype}
    options = {"compress": "deflate", "predictor": 2, "blocksize": block, "overview_resampling": "nearest"}
    with rasterio.open(path, "w", driver="COG", num_threads=2, **size, **georeference, **options) as file:
        file.write(pixels, 1)


def _item(edge: int) -> dict[str, Any]:
    """The scene as a STAC Item."""
    from rasterio.warp import transform_bounds

    box = transform_bounds(HOME, "EPSG:4326", LEFT, TOP - 10 * edge, LEFT + 10 * edge, TOP)
    west, south, east, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    assets = {}
    for name in (*BANDS, "scl"):
        step = 10 * (1 if name in FINE else 2)
        georeference = {"proj:shape": [edge * 10 // step] * 2, "proj:transform": [step, 0, LEFT, 0, -step, TOP]}
        scaling = {"scale": 1.0, "offset": 0.0} | ({} if name == "scl" else {"scale": 0.0001})
        raster_band = {"nodata": 0, "data_type": "uint8" if name == "scl" else "uint16", **scaling}
        assets[name] = {
            "href": f"{name}.tif",
            "type": "image/tiff; application=geotiff; profile=cloud-optimized",
            "roles": ["data"],
            "raster:bands": [raster_band],
            **georeference,
        }
    return {
        "type": "Feature",
        "stac_version": "1.0.0",
        "stac_extensions": [
            "https://stac-extensions.github.io/projection/v1.1.0/schema.json",
            "https://stac-extensions.github.io/raster/v1.1.0/schema.json",
        ],
        "id": "made-up",
        "collection": "made-up",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": list(box),
        "properties": {"datetime": "2023-08-10T10:00:00Z", "proj:epsg": 32633},
        "links": [],
        "assets": assets,
    }


def grid_of(edge: int, crs: str) -> Any:
    """The grid of the scene, or one of another CRS over the same area."""
    from odc.geo.geobox import GeoBox

    from eopipe.tiles.grid import make_grid

    home = make_grid((LEFT, TOP - 10 * edge, LEFT + 10 * edge, TOP), HOME, 10.0, (LEFT, TOP))
    if crs == HOME:
        return home
    box = home.extent.to_crs(crs).boundingbox
    return GeoBox.from_bbox(box, crs=crs, resolution=10)
