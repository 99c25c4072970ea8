"""What a real web server delivers: whole files, the rest of files, parts of files, and only what is new."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from catalogs import CATALOGS
from nginx import Served, nginx
from remote_assets import loopback_session, tif
from scenery import Run
from server_requests import SAMPLE, Watch, names, search
from stac_api import Api

from eopipe.fetch.download import download_asset

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("changed", [False, True], ids=["same", "changed"])
def test_a_download_goes_on_where_it_broke_off_unless_the_file_has_changed(tmp_path: Path, changed: bool) -> None:
    (tmp_path / "files").mkdir()
    body, part = tif(400_000, 1), tmp_path / "red.part"
    (tmp_path / "files/red.tif").write_bytes(body)
    with nginx({"files": tmp_path / "files"}, tmp_path / "work") as server:
        asset: dict[str, Any] = {"href": f"{server.url}/files/red.tif"}
        download_asset(asset, "red", None, part, loopback_session())
        # As a kill leaves it.
        os.truncate(part, 150_000)
        part.with_suffix(".whole").unlink()
        if changed:
            body = tif(500_000, 2)
            (tmp_path / "files/red.tif").write_bytes(body)
        watch = Watch(server)
        download_asset(
            asset | {"file:checksum": f"1220{sha256(body).hexdigest()}"}, "red", None, part, loopback_session()
        )
        assert [line.status for line in watch.lines()] == [200 if changed else 206]
    assert part.read_bytes() == body


@pytest.mark.skipif(not CATALOGS["shared"].is_dir(), reason="the shared catalog is not beside this checkout")
def test_windows_come_with_range_requests_and_hold_the_pixels_of_the_original(
    api: Api, assets: Served, tmp_path: Path, run: Run
) -> None:
    import rasterio
    from rasterio.windows import from_bounds

    name = "S2A_33TWL_20230815_0_L2A"
    arguments = ("--collections", "sentinel-2-l2a-33t", "--ids", name, "--bbox", 15.3, 45.5, 15.4, 45.6)
    completed = search(run, tmp_path, api, *arguments, assets=("--assets", "red"))
    assert completed.code == 0, completed.stderr
    watch, item = Watch(assets), tmp_path / f"items/{name}.geojson"
    scene = ("--scene", tmp_path / "scene", "--grid", tmp_path / "grid.json", "--windows")
    completed = run("fetch", "--item", item, *scene, "--private-hosts", "127.0.0.1")
    assert completed.code == 0, completed.stderr
    assert {line.status for line in watch.lines()} == {206}
    part = next((tmp_path / "scene").glob("red*"))
    original = CATALOGS["shared"] / f"sentinel-2-l2a-33t/{name}/B04.tif"
    assert part.stat().st_size < original.stat().st_size / 2
    with rasterio.open(part) as windowed, rasterio.open(original) as original_file:
        window = from_bounds(*windowed.bounds, original_file.transform).round_offsets().round_lengths()
        np.testing.assert_array_equal(windowed.read(1), original_file.read(1, window=window))


def pipeline(folder: Path, api: Api, dates: str) -> None:
    """Run the pipeline up to the scenes, as a person does."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    del config["search"]["catalog"]
    config["search"] |= {"url": api.url, "collections": [SAMPLE], "datetime": dates}
    config["label"]["source"] = str(ROOT / config["label"]["source"])
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "eopipe", "run", "--configfile", "config.yaml", "--cores", "2"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for search_only in (["--until", "search"], None):
        # Which scenes there are is known only then.
        targets = search_only or [f"results/scenes/{name}/manifest.json" for name in names(folder / "results")]
        completed = subprocess.run(
            [*command, *targets],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            env=os.environ | {"PATH": path},
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.exhaustive
def test_wider_dates_fetch_only_the_new_scenes(api: Api, assets: Served, tmp_path: Path) -> None:
    watch = Watch(assets)
    pipeline(tmp_path, api, "2020")
    old = set(names(tmp_path / "results"))
    assert {line.path.split("/")[-2] for line in watch.lines()} == old
    assert old
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/scenes/*/manifest.json")}
    watch = Watch(assets)
    pipeline(tmp_path, api, "2019-09/2020")
    new = set(names(tmp_path / "results")) - old
    assert {line.path.split("/")[-2] for line in watch.lines()} == new
    assert new
    assert {path: path.stat().st_mtime_ns for path in before} == before
