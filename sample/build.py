"""Rebuild the embedded sample from the wheel that carries its data: `python sample/build.py WHEEL`.

The wheel is nrt 0.2.1 (`pip download --no-deps nrt==0.2.1`; later versions have no data). It is read as an
archive and never imported. Needs h5netcdf and h5py beside eopipe. The same wheel gives the same bytes.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import xarray as xr
from affine import Affine
from pyproj import Transformer
from rasterio.io import MemoryFile
from rasterio.shutil import copy

HERE = Path(__file__).parent
COLLECTION = "sentinel-2-l2a-romania"
CUBE = "nrt/data/sentinel2_cube_subset_romania_10m.nc"
COVER = "nrt/data/tree_cover_density_2018_romania.tif"
LICENCE = "nrt-0.2.1.dist-info/LICENSE"
LEGAL = "https://sentinels.copernicus.eu/documents/247904/690755/Sentinel_Data_Legal_Notice"
CREDIT = "Contains modified Copernicus Sentinel data 2015-2021"
COG = "image/tiff; application=geotiff; profile=cloud-optimized"
BANDS = {"blue": ("B2", "B02"), "green": ("B3", "B03"), "red": ("B4", "B04"), "nir": ("B8", "B08")}
CLOUDY = (3, 8, 9, 10)
# Clear dates from April to October of three years; 2018-06-06 and 2019-08-30 are partly cloudy, 2020-02-01 is snow.
DATES = (
    "2017-04-12", "2017-06-21", "2017-07-11", "2017-08-15", "2017-09-14", "2017-10-04",
    "2018-04-12", "2018-04-22", "2018-05-02", "2018-05-22", "2018-06-06", "2018-07-01",
    "2018-07-21", "2018-08-25", "2018-09-19", "2018-10-09", "2019-04-07", "2019-06-16",
    "2019-07-06", "2019-08-20", "2019-08-30", "2019-09-19", "2019-10-09", "2020-02-01",
)  # fmt: skip


def main(wheel: Path) -> None:
    """Write the catalog beside this file."""
    shutil.rmtree(HERE / COLLECTION, ignore_errors=True)
    with tempfile.TemporaryDirectory() as extracted, zipfile.ZipFile(wheel) as archive:
        for name in (CUBE, COVER, LICENCE):
            archive.extract(name, extracted)
        cube = xr.open_dataset(Path(extracted, CUBE), engine="h5netcdf", mask_and_scale=False).load()
        items = [write_scene(cube.sel(time=date), date) for date in DATES]
        write_cover(Path(extracted, COVER))
        (HERE / "LICENSE-EUPL-1.2.txt").write_bytes(Path(extracted, LICENCE).read_bytes())
    write_catalog(items)


def transform_of(scene: xr.Dataset) -> Affine:
    """Return the affine transform; the cube's coordinates are pixel centres."""
    return Affine(10.0, 0.0, float(scene.x[0]) - 5, 0.0, -10.0, float(scene.y[0]) + 5)


def write_scene(scene: xr.Dataset, date: str) -> dict[str, Any]:
    """Write the COGs and the STAC Item of one date; return the item."""
    name = f"S2_ROMANIA_{date.replace('-', '')}"
    folder = HERE / COLLECTION / name
    folder.mkdir(parents=True)
    assets = {}
    for key, (variable, band) in BANDS.items():
        write_cog(folder / f"{band}.tif", scene[variable].values, transform_of(scene), 0)
        assets[key] = asset(folder / f"{band}.tif", f"{key} ({band}), 10 m", "reflectance") | reflectance(key, band)
    write_cog(folder / "SCL.tif", scene["SCL"].values.astype(np.uint8), transform_of(scene), 0)
    stored = {"data_type": "uint8", "nodata": 0, "spatial_resolution": 10}
    assets["scl"] = asset(folder / "SCL.tif", "Sen2Cor scene classification", "classification")
    assets["scl"] |= {"raster:bands": [stored]}
    stac_item = item(name, date, scene, assets)
    write_json(folder / f"{name}.json", stac_item)
    return stac_item


def write_cog(path: Path, pixels: Any, transform: Affine, nodata: int | None) -> None:
    """Write a small cloud-optimised GeoTIFF in EPSG:3035."""
    height, width = pixels.shape
    profile = {"driver": "GTiff", "count": 1, "dtype": pixels.dtype, "nodata": nodata, "crs": "EPSG:3035"}
    with MemoryFile() as memory:
        with memory.open(**profile, height=height, width=width, transform=transform) as file:
            file.write(pixels, 1)
        options = {"COMPRESS": "DEFLATE", "LEVEL": "9", "PREDICTOR": "YES", "BLOCKSIZE": "128", "NUM_THREADS": "1"}
        copy(memory.name, path, driver="COG", OVERVIEWS="NONE", **options)


def asset(path: Path, title: str, role: str) -> dict[str, Any]:
    """Describe a STAC asset with size and checksum."""
    checksum = "1220" + hashlib.sha256(path.read_bytes()).hexdigest()
    properties = {"href": f"./{path.name}", "type": COG, "title": title, "roles": ["data", role]}
    return properties | {"gsd": 10, "file:size": path.stat().st_size, "file:checksum": checksum}


def reflectance(name: str, band: str) -> dict[str, Any]:
    """Scale and offset of stored numbers: all dates are before processing baseline 04.00, so there is no offset."""
    stored = {"data_type": "uint16", "nodata": 0, "scale": 0.0001, "offset": 0.0, "spatial_resolution": 10}
    return {"raster:bands": [stored], "eo:bands": [{"name": band, "common_name": name}]}


def item(name: str, date: str, scene: xr.Dataset, assets: dict[str, Any]) -> dict[str, Any]:
    """Return the STAC Item of a date."""
    transform, (height, width) = transform_of(scene), scene["SCL"].shape
    ring, cloud = corners(transform, height, width), float(np.isin(scene["SCL"].values, CLOUDY).mean() * 100)
    lons, lats = zip(*ring, strict=True)
    properties = {
        "datetime": f"{date}T00:00:00Z",
        "platform": "sentinel-2",
        "constellation": "sentinel-2",
        "instruments": ["msi"],
        "gsd": 10,
        "eo:cloud_cover": round(cloud, 1),
        "proj:code": "EPSG:3035",
        "proj:shape": [height, width],
        "proj:transform": list(transform)[:6],
        "proj:bbox": [*(transform @ (0, height)), *(transform @ (width, 0))],
        "attribution": CREDIT,
    }
    links = [
        {"rel": "root", "href": "../../catalog.json", "type": "application/json"},
        {"rel": "parent", "href": "../collection.json", "type": "application/json"},
        {"rel": "collection", "href": "../collection.json", "type": "application/json"},
        {"rel": "license", "href": LEGAL},
    ]
    kinds = ("projection/v2.0.0", "eo/v1.1.0", "raster/v1.1.0", "file/v2.1.0")
    return {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [f"https://stac-extensions.github.io/{kind}/schema.json" for kind in kinds],
        "id": name,
        "collection": COLLECTION,
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": [min(lons), min(lats), max(lons), max(lats)],
        "properties": properties,
        "links": links,
        "assets": assets,
    }


def corners(transform: Affine, height: int, width: int) -> list[list[float]]:
    """Return the footprint as a closed ring of longitude and latitude."""
    to_degrees = Transformer.from_crs("EPSG:3035", "EPSG:4326", always_xy=True)
    pixels = ((0, 0), (0, height), (width, height), (width, 0), (0, 0))
    return [[round(v, 7) for v in to_degrees.transform(*(transform @ pixel))] for pixel in pixels]


def write_cover(source: Path) -> None:
    """Write the tree cover with an EPSG code as CRS; the file's CRS is unnamed."""
    with rasterio.open(source) as file:
        write_cog(HERE / "tree_cover_density_2018.tif", file.read(1), file.transform, int(file.nodata))


def write_catalog(items: list[dict[str, Any]]) -> None:
    """Write the catalog, the collection and the area."""
    boxes = np.array([entry["bbox"] for entry in items])
    box = [*boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()]
    times = [entry["properties"]["datetime"] for entry in items]
    description = (
        "Sentinel-2 L2A over a forest edge in Romania, 100 x 100 pixels of 10 m. The source states dates only. "
    )
    children = [{"rel": "item", "href": f"./{i['id']}/{i['id']}.json", "type": "application/geo+json"} for i in items]
    legal = [{"rel": "license", "href": href} for href in (LEGAL, "../LICENSE-EUPL-1.2.txt")]
    root = {"rel": "root", "href": "../catalog.json", "type": "application/json"}
    collection = {
        "type": "Collection",
        "id": COLLECTION,
        "stac_version": "1.1.0",
        "description": f"{description}{CREDIT}; packaged in nrt 0.2.1, (c) European Union (JRC), EUPL-1.2.",
        "license": "other",
        "keywords": ["Sentinel-2", "forest", "Romania"],
        "providers": [
            {"name": "European Union/ESA/Copernicus", "roles": ["producer", "licensor"]},
            {"name": "European Union (JRC), nrt", "roles": ["processor"]},
        ],
        "extent": {"spatial": {"bbox": [box]}, "temporal": {"interval": [[min(times), max(times)]]}},
        "links": [root, root | {"rel": "parent"}, *legal, *children],
    }
    catalog = {
        "type": "Catalog",
        "id": "eopipe-sample",
        "stac_version": "1.1.0",
        "description": "The embedded sample of eopipe: real Sentinel-2 scenes for the demo and the tests.",
        "links": [
            {"rel": "root", "href": "./catalog.json", "type": "application/json"},
            {"rel": "child", "href": f"./{COLLECTION}/collection.json", "type": "application/json"},
        ],
    }
    write_json(HERE / COLLECTION / "collection.json", collection)
    write_json(HERE / "catalog.json", catalog)
    area = {"type": "Feature", "properties": {"name": "sample"}, "geometry": items[0]["geometry"]}
    write_json(HERE / "area.geojson", {"type": "FeatureCollection", "features": [area]})


def write_json(path: Path, value: Any) -> None:
    """Write JSON with stable bytes."""
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
