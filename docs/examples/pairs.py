"""Image/mask pairs of the sample, in the place of a chip set that you have: chips of 20 pixels of one date.

    python docs/examples/pairs.py FOLDER

Run it where the folder `sample` is.
"""

import sys
from pathlib import Path

import numpy as np
import rasterio
from rasterio.windows import Window

EDGE, BANDS = 20, {"blue": "B02", "green": "B03", "red": "B04", "nir": "B08"}
SCENE = Path("sample/sentinel-2-l2a-romania/S2_ROMANIA_20180701")
target = Path(sys.argv[1])
for name in ("images", "masks"):
    (target / name).mkdir(parents=True, exist_ok=True)
with rasterio.open(SCENE / "B02.tif") as first:
    shape, transform, crs = first.shape, first.transform, first.crs
image = np.stack([rasterio.open(SCENE / f"{band}.tif").read(1) for band in BANDS.values()])
with rasterio.open("sample/tree_cover_density_2018.tif") as raster:
    # Its pixels are two of the scene's.
    mask = np.kron(raster.read(1) >= 50, np.ones((2, 2))).astype("uint8")[None]
for row in range(0, shape[0], EDGE):
    for column in range(0, shape[1], EDGE):
        place = rasterio.windows.transform(Window(column, row, EDGE, EDGE), transform)
        for name, array in (("images", image), ("masks", mask)):
            chip = array[:, row : row + EDGE, column : column + EDGE]
            options = {"count": len(chip), "height": EDGE, "width": EDGE, "dtype": chip.dtype}
            path = target / name / f"row{row // EDGE}_column{column // EDGE}.tif"
            with rasterio.open(path, "w", driver="GTiff", crs=crs, transform=place, **options) as file:
                file.write(chip)
                if name == "images":
                    file.descriptions = list(BANDS)
