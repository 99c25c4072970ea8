"""A table of points of forest and open land from the tree cover of the sample, as one has them from field work.

    python docs/examples/points.py TO.csv

Run it where the folder `sample` is.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import rasterio
from rasterio.warp import transform

with rasterio.open("sample/tree_cover_density_2018.tif") as raster:
    cover = raster.read(1)
    rows, columns = np.indices(cover.shape)[:, 1::3, 1::3].reshape(2, -1)
    east, north = rasterio.transform.xy(raster.transform, rows, columns)
    longitudes, latitudes = transform(raster.crs, "EPSG:4326", east, north)
with Path(sys.argv[1]).open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(("longitude", "latitude", "class"))
    for longitude, latitude, percent in zip(longitudes, latitudes, cover[rows, columns].tolist(), strict=True):
        table.writerow((f"{longitude:.7f}", f"{latitude:.7f}", "forest" if percent >= 50 else "open"))
print(len(rows), "points")
