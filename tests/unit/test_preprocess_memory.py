"""Memory of preprocess does not grow with the scene, and a whole granule stays under 1.5 GiB."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scenery import CRS, LEFT, TOP

from eopipe.text_files import write_json

NAMES = ("blue", "green", "red", "nir")
PEAK = "print(next(row.split()[1] for row in open('/proc/self/status') if row.startswith('VmHWM')))"
STARTED = f"import sys; from eopipe.cli import main; code = main(sys.argv[1:]); {PEAK}; sys.exit(code)"


def granule(folder: Path, height: int, width: int) -> Path:
    """Write a scene of four bands at 10 m and SCL at 20 m; GDAL reads missing blocks as zeros."""
    import rasterio
    from rasterio.transform import from_origin

    assets = {}
    folder.mkdir()
    for name in (*NAMES, "scl"):
        factor = 2 if name == "scl" else 1
        size = {"height": height // factor, "width": width // factor, "count": 1, "dtype": "uint16", "crs": CRS}
        tiles = {"tiled": True, "blockxsize": 512, "blockysize": 512, "sparse_ok": True, "compress": "deflate"}
        step = 10 * factor
        transform = from_origin(LEFT, TOP, step, step)
        with rasterio.open(folder / f"{name}.tif", "w", driver="GTiff", transform=transform, **size, **tiles):
            pass
        band = {"scale": 0.0001, "offset": 0.0, "data_type": "uint16"}
        assets[name] = {"href": f"./{name}.tif", "raster:bands": [band]}
    item = {"geometry": {"type": "Point", "coordinates": [15, 46]}, "properties": {"proj:code": CRS}, "assets": assets}
    (folder / "scene.json").write_text(json.dumps({"type": "Feature", "stac_version": "1.1.0", "id": "g"} | item))
    return folder


def peak(scene: Path, height: int, width: int, shift: float, *arguments: object) -> float:
    """Peak memory in MiB of preprocessing a scene in its own process, on a grid shifted by these metres."""
    grid, shape = scene.with_suffix(".grid.json"), [height, width]
    transform = [10.0, 0.0, LEFT + shift, 0.0, -10.0, TOP - shift]
    write_json(grid, {"crs": CRS, "shape": shape, "transform": transform})
    options = ["--scene", scene, "--grid", grid, "--tiles", scene.with_suffix(".zarr"), "--threads", 2, *arguments]
    done = subprocess.run(
        [sys.executable, "-c", STARTED, "preprocess", *map(str, options)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / 1024


@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.exhaustive
def test_memory_does_not_grow_with_the_scene(tmp_path: Path, shift: float) -> None:
    small, large = ((height, 4096) for height in (3072, 12288))
    before, after = (
        peak(granule(tmp_path / str(shape[0]), *shape), *shape, shift, "--shard", 2048) for shape in (small, large)
    )
    # The smaller scene fills the caches; of the additional pixels, one band alone needs 72 MiB.
    assert after - before < 36


@pytest.mark.exhaustive
def test_a_whole_granule_takes_less_than_one_and_a_half_gib(tmp_path: Path) -> None:
    assert peak(granule(tmp_path / "g", 10980, 10980), 10980, 10980, 0.0) < 1536
