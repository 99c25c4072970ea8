"""Polygons of forest and of open land from the tree cover of the sample, in the place of polygons that you draw.

    python docs/examples/polygons.py TO.geojson

Run it where the folder `sample` is.
"""

import json
import sys
from pathlib import Path

import rasterio
from rasterio.warp import transform_geom
from rasterio.windows import Window
from shapely.geometry import box, mapping

EDGE, STEP = 3, 4
polygons = []
with rasterio.open("sample/tree_cover_density_2018.tif") as raster:
    is_forest = raster.read(1) >= 50
    for row in range(0, raster.height - EDGE, STEP):
        for column in range(0, raster.width - EDGE, STEP):
            pixels = is_forest[row : row + EDGE, column : column + EDGE]
            if pixels.all() or not pixels.any():
                bounds = raster.window_bounds(Window(column, row, EDGE, EDGE))
                geometry = transform_geom(raster.crs, "EPSG:4326", mapping(box(*bounds)))
                name = "forest" if pixels.all() else "open"
                polygons.append({"type": "Feature", "properties": {"class": name}, "geometry": geometry})
Path(sys.argv[1]).write_text(json.dumps({"type": "FeatureCollection", "features": polygons}))
print(len(polygons), "polygons")
