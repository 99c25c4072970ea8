"""The embedded sample: real scenes, whole, attributed, and rebuilt from their source byte by byte."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pystac
import pytest
import rasterio

SAMPLE = Path(__file__).parents[2] / "sample"
ITEMS = sorted(SAMPLE.glob("*/*/*.json"))
CREDIT = (
    "Contains modified Copernicus Sentinel data 2015-2021; tree cover density: Copernicus Land Monitoring Service, "
    "European Union; packaged in nrt 0.2.1, (c) European Union (JRC), EUPL-1.2"
)


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) <= 4_000_000


def test_the_catalog_opens_and_has_every_scene() -> None:
    items = list(pystac.Catalog.from_file(str(SAMPLE / "catalog.json")).get_items(recursive=True))
    assert sorted(item.id for item in items) == [path.stem for path in ITEMS]
    assert {item.datetime.month for item in items if item.datetime} >= {2, 4, 5, 6, 7, 8, 9, 10}
    assert max(item.properties["eo:cloud_cover"] for item in items) > 10


@pytest.mark.parametrize("path", ITEMS, ids=lambda path: path.stem)
def test_every_asset_is_what_its_item_says(path: Path) -> None:
    item = json.loads(path.read_text())
    assert set(item["assets"]) == {"blue", "green", "red", "nir", "scl"}
    for asset in item["assets"].values():
        file = path.parent / asset["href"]
        assert asset["file:size"] == file.stat().st_size
        assert asset["file:checksum"] == "1220" + hashlib.sha256(file.read_bytes()).hexdigest()
        with rasterio.open(file) as raster:
            assert (raster.crs.to_epsg(), raster.shape) == (3035, (100, 100))
            assert list(raster.transform)[:6] == item["properties"]["proj:transform"]


def test_the_sources_are_credited() -> None:
    readme = " ".join((SAMPLE / "README.md").read_text().split())
    assert CREDIT in readme
    assert (SAMPLE / "LICENSE-EUPL-1.2.txt").stat().st_size > 10_000


@pytest.mark.by_hand
def test_the_sample_is_rebuilt_from_its_wheel_byte_by_byte(tmp_path: Path) -> None:
    """It reads a package index, so it is left out unless it is run by hand, after a change of `sample/build.py`:

    `EOPIPE_REBUILD_SAMPLE=1 pytest tests/unit/test_sample.py`.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path), "nrt==0.2.1"]
    subprocess.run(pip, check=True, capture_output=True)
    (tmp_path / "sample").mkdir()
    shutil.copy(SAMPLE / "build.py", tmp_path / "sample")
    build = [sys.executable, str(tmp_path / "sample/build.py"), str(next(tmp_path.glob("nrt*.whl")))]
    subprocess.run(build, check=True, capture_output=True)
    rebuilt = {
        p.relative_to(tmp_path / "sample"): p.read_bytes() for p in (tmp_path / "sample").rglob("*") if p.is_file()
    }
    committed = {
        p.relative_to(SAMPLE): p.read_bytes() for p in SAMPLE.rglob("*") if p.is_file() and p.name != "README.md"
    }
    assert rebuilt.keys() == {path for path in committed if "__pycache__" not in path.parts}
    assert [str(path) for path in rebuilt if rebuilt[path] != committed[path]] == []
