"""Label the points of a sample of the demo's map from the tree cover that is its truth, in the place of a person.

python docs/examples/label_sample.py map-sample/sample.csv map-sample/labelled.csv
"""

import csv
import sys
from pathlib import Path

import rasterio
from rasterio.warp import transform

source, target = sys.argv[1:]
with Path(source).open(newline="") as file:
    rows = [*csv.DictReader(file)]
with rasterio.open("sample/tree_cover_density_2018.tif") as truth:
    x, y = transform("EPSG:4326", truth.crs, *([float(row[axis]) for row in rows] for axis in ("LON", "LAT")))
    covers = [cover for (cover,) in truth.sample(zip(x, y, strict=True))]
with Path(target).open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    labels = ["forest" if cover >= 50 else "non-forest" for cover in covers]
    writer.writerows(row | {"label": label} for row, label in zip(rows, labels, strict=True))
