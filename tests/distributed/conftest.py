"""A small real data set: eight dates of the sample, cut and split through the command line."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from projects import made_once
from trainings import Data, Training, payload, run_stage, workers

ROOT = Path(__file__).parents[2]
SCENES = ("20170412", "20170621", "20170815", "20180422", "20180701", "20180919", "20190616", "20191009")
SIZES = ("--chunk", "32", "--shard", "128")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    root = made_once(tmp_path_factory.mktemp("data", numbered=False), prepare)
    return Data(root, [str(root / "tiles" / f"S2_ROMANIA_{day}.zarr") for day in SCENES])


def prepare(root: Path) -> None:
    sample, grid = ROOT / "sample", root / "grid.json"
    ids = [f"S2_ROMANIA_{day}" for day in SCENES]
    arguments = ["search", "--catalog", sample, "--items", root / "items", "--grid", grid, "--ids", *ids]
    arguments += ["--selection", root / "selection.json"]
    assert run_stage(*arguments) == 0
    for name in ids:
        scene, store = root / "scenes" / name, root / "tiles" / f"{name}.zarr"
        item = root / "items" / f"{name}.geojson"
        assert run_stage("fetch", "--item", item, "--catalog", sample, "--scene", scene) == 0
        assert run_stage("preprocess", "--scene", scene, "--grid", grid, "--tiles", store, *SIZES) == 0
    source = sample / "tree_cover_density_2018.tif"
    assert (
        run_stage("label", "--grid", grid, "--source", source, "--bins", 50, "--labels", root / "all.zarr", *SIZES) == 0
    )
    prepared = Data(root, [str(root / "tiles" / f"{name}.zarr") for name in ids])
    plan = ["--method", "west-east", "--fractions", 0.48, 0.16, 0.36, "--chip", 16, "--stride", 8]
    drawn = ["--map", root / "split.png", "--outlines", root / "split.gpkg"]
    assert run_stage("split", *prepared.stores(), *prepared.cut(), *drawn, *plan) == 0


@pytest.fixture
def training(data: Data, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Training]:
    """A training; with the mark `launch` it starts interpreters of its own."""
    yield Training(data, tmp_path, cold_start=request.node.get_closest_marker("launch") is not None)
    for pid in workers(tmp_path):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def submit_folder(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to submit from, with the inputs of a training below it."""
    shutil.copytree(data.root, tmp_path / "submit" / "in put")
    monkeypatch.chdir(tmp_path / "submit")
    return tmp_path / "submit"


@pytest.fixture(scope="session")
def undisturbed(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model that was trained without interruption."""

    def train(folder: Path) -> None:
        completed = Training(data, folder).run()
        assert completed.returncode == 0, completed.stderr

    folder = made_once(tmp_path_factory.mktemp("undisturbed", numbered=False), train)
    return payload(Training(data, folder).model)
