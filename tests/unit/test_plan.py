"""A plan forecasts scenes, files, bytes and chips, refuses a run over a quota, and downloads nothing."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import shapely
import yaml
from builders import store_files, write_features
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Loopback
from PIL import Image
from pyproj import Transformer
from scenery import (
    CRS,
    LEFT,
    STEP,
    TOP,
    Catalog,
    Run,
    search_outputs,
    split_outputs,
    write_config,
    write_raster,
    write_stripes,
)
from shapely.geometry import box

from eopipe import cli
from eopipe.arrays import AnyArray
from eopipe.chips import splits
from eopipe.cli import report_error
from eopipe.clusters.profile import JobShape
from eopipe.config import check, load
from eopipe.contract import Option, stage, to_args
from eopipe.fetch.assets import asset_sizes
from eopipe.fetch.retry import FetchSession
from eopipe.planning.chip_forecast import chips_json, forecast_splits
from eopipe.planning.disk_forecast import (
    MAP_BYTES,
    DiskForecast,
    DiskRow,
    Quota,
    sample_size,
    typical_size,
)
from eopipe.planning.frozen_scenes import find_scenes
from eopipe.planning.plan_command import RunForecast, figure_bounds, forecast_lines, forecast_run, refusals
from eopipe.publish import files
from eopipe.reporting.figures import SPLIT_COLORS, rgb
from eopipe.text_files import write_json
from eopipe.text_table import format_bytes, parse_size
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import add_array, new_store
from eopipe.warp.footprints import grid_extent

SHAPE = (96, 160)
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
# As a config derives them from preprocess.bands.
BANDS = ("--grid-assets", "blue", "red")


def sprinkled(seed: int, shape: tuple[int, int] = SHAPE) -> AnyArray:
    """Pixels that compress like nothing else: noise over a slope."""
    random = np.random.default_rng(seed)
    return (1000 + np.add.outer(np.arange(shape[0]), np.arange(shape[1])) + random.integers(0, 60, shape)).astype(
        "uint16"
    )


def scenes(catalog: Catalog, count: int = 3, **item: Any) -> None:
    for n in range(count):
        properties = {"datetime": f"2023-0{n + 5}-01T10:00:00Z", "eo:cloud_cover": 10.0 * n}
        properties["grid:code"] = f"MGRS-33TW{'LM'[n % 2]}"
        bands = {"blue": sprinkled(n), "red": sprinkled(n + 9), "scl": np.full(SHAPE, 4, np.uint8)}
        catalog.add(f"scene-{n}", bands, shape=SHAPE, properties=properties, **item)


def write(folder: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    """A config for the scenes, with a label raster of striped classes."""
    write_stripes(folder / "labels.tif", SHAPE, 3)
    return check(write_config(folder, **changes))


@pytest.fixture
def folder(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to plan in, with three scenes."""
    monkeypatch.chdir(tmp_path)
    scenes(catalog)
    catalog.write()
    return tmp_path


def planned(run: Run, folder: Path, *arguments: object) -> dict[str, Any]:
    run("plan", "config.yaml", *arguments).ends(0)
    value: dict[str, Any] = json.loads((folder / "plan/plan.json").read_text())
    return value


def test_a_plan_names_the_scenes_with_dates_cloud_and_bytes_and_leaves_no_results(folder: Path, run: Run) -> None:
    write(folder)
    value = planned(run, folder)
    assert [row["scene"] for row in value["scenes"]] == ["scene-0", "scene-1", "scene-2"]
    assert [row["date"] for row in value["scenes"]] == ["2023-05-01", "2023-06-01", "2023-07-01"]
    assert [row["cloud"] for row in value["scenes"]] == [0.0, 10.0, 20.0]
    assert all(row["share_of_grid"] == 1.0 for row in value["scenes"])
    sizes = [sum(file.stat().st_size for file in (folder / "catalog" / f"s{n}").glob("*.tif")) for n in range(3)]
    assert [row["bytes"] for row in value["scenes"]] == sizes
    assert value["fetch"] == {"bytes": sum(sizes), "assets_of_unknown_size": 0}
    assert not (folder / "results").exists()
    assert not (folder / "state").exists()


@pytest.mark.exhaustive
def test_a_plan_shows_the_geometry_of_the_training_with_and_without_a_profile(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder)
    alone = "training: 1 node x 1 process (1 GPU each if available), 1 CPU and as much memory as its input needs"
    geometry, length = planned(run, folder)["training"]
    assert geometry == f"{alone} per node; one torchrun agent, without srun; rendezvous on the node itself"
    assert length.startswith("training length: 200 steps, ")
    (folder / "own-profile").mkdir()
    train = JobShape(2, 2, 32, 64_000, "a100").resources()
    (folder / "own-profile/config.yaml").write_text(
        yaml.safe_dump({"executor": "slurm", "set-resources": {"train": train}})
    )
    write(folder, train={"nodes": "2", "processes": 2})
    table = (
        "training: 2 nodes x 2 processes (1 GPU each), 32 CPUs and 64 GB per node; "
        "one torchrun agent per node, through srun; rendezvous on the first node"
    )
    assert cli.main(["plan", "config.yaml", "--profile", "own-profile"]) == 0
    assert f"\n{table}\n" in capsys.readouterr().out
    write(folder, train={"nodes": "3", "processes": 2})
    assert cli.main(["plan", "config.yaml", "--profile", "own-profile"]) == 3
    conflict = 'the profile gives the training 2 nodes, but train.nodes is 3; set train.nodes: "2" in the config'
    assert f"error: this will stop the run: {conflict}" in capsys.readouterr().err
    assert len(json.loads((folder / "plan/plan.json").read_text())["stops"]) == 1


@pytest.mark.exhaustive
def test_the_same_plan_has_the_same_bytes(folder: Path, run: Run) -> None:
    write(folder)
    planned(run, folder)
    planned(run, folder, "--out", "again")
    for name in ("plan.json", "plan.geojson", "plan.png"):
        assert (folder / "plan" / name).read_bytes() == (folder / "again" / name).read_bytes()


SPLITS: dict[str, dict[str, Any]] = {
    "strips": {},
    "strips and a buffer": {"buffer": 5},
    "strips from the east": {"method": "east-west", "stride": 12, "buffer": 3},
    "blocks that are no multiple of the stride": {"method": "blocks", "block": 40, "fractions": [0.4, 0.3, 0.3]},
    "blocks": {"method": "blocks", "block": 32, "fractions": [0.4, 0.3, 0.3]},
    "checkerboard": {"method": "checkerboard", "block": 32},
    "overlapping chips": {"stride": 8},
    "dates": {
        "method": "temporal",
        "dates": ["2023-06-01", "2023-07-01"],
        "allow": ["near-duplicate: the test's scenes", "place: one raster of labels"],
    },
    "scenes": {
        "method": "group",
        "by": "scene",
        "fractions": [0.34, 0.33, 0.33],
        "allow": ["place: one raster of labels"],
    },
    "folds": {"method": "blocks", "block": 32, "folds": 3, "fold": 1},
}


@pytest.fixture
def stores(folder: Path, run: Run) -> Path:
    """The tiles and labels that a plan forecasts."""
    frozen_scenes = find_scenes(write(folder))
    options = ("--chunk", 16, "--shard", 64, "--grid", "grid.json")
    write_json(folder / "grid.json", frozen_scenes.frame.json())
    for n, item in enumerate(frozen_scenes.items.values()):
        links = {name: asset | {"href": f"{name}.tif"} for name, asset in item["assets"].items()}
        write_json(folder / f"catalog/s{n}/scene.json", item | {"assets": links})
        ports = ("--scene", f"catalog/s{n}", "--tiles", f"tiles/{n}.zarr", "--bands", "blue", "red")
        assert run("preprocess", *ports, *options).code == 0
    assert run("label", "--labels", "l.zarr", "--source", "labels.tif", "--classes", "a", "b", *options).code == 0
    return folder


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.exhaustive
def test_the_chips_of_each_class_and_split_are_those_that_split_makes_of_clear_scenes(
    stores: Path, run: Run, name: str
) -> None:
    config = write(stores, split=SPLITS[name])
    frozen_scenes = find_scenes(config)
    forecast = chips_json(next(forecast_splits(config, frozen_scenes, [config["split"]])))
    options = [word for port in stage("split").of(Option) for word in to_args(port, config["split"][port.name])]
    tiles = [f"tiles/{n}.zarr" for n in range(3)]
    run("split", "--tiles", *tiles, "--labels", "l.zarr", *split_outputs(stores), *options).ends(0)
    result = json.loads((stores / "split.json").read_text())
    for split, chips in forecast.items():
        assert chips["chips"] == len(result["samples"][split])
        assert {k: v["pixels"] for k, v in chips["classes"].items()} == result["pixels"][split]
        assert {k: v["chips"] for k, v in chips["classes"].items()} == result["chips"][split]


@pytest.mark.parametrize(("word", "size"), [("--max-files", "10"), ("--max-bytes", "1.5kB")])
def test_a_plan_over_a_quota_is_refused_with_what_it_needs_and_what_there_is(
    folder: Path, run: Run, word: str, size: str
) -> None:
    write(folder)
    value = planned(run, folder)
    completed = run("plan", "config.yaml", word, size).ends(6)
    needs = (
        f"{value['totals']['inodes']} files and folders"
        if word == "--max-files"
        else format_bytes(value["totals"]["bytes"])
    )
    assert f"it needs {needs}" in completed.stderr
    assert f"{word} allows {'10' if word == '--max-files' else '1.5 kB'}" in completed.stderr
    refused = json.loads((folder / "plan/plan.json").read_text())["refused"]
    assert len(refused) == 1, "the plan is there to look at"
    assert value["refused"] == []


def test_a_plan_that_is_larger_than_the_disk_is_refused(folder: Path, catalog: Catalog) -> None:
    config = write(folder)
    frozen_scenes = find_scenes(config)
    rows = DiskRow("tiles", 1, 10**15, 10**18), DiskRow("labels", 1, 10**3, 10**3)
    large, small = (DiskForecast([row], (0, 0), [Path("none")]) for row in rows)
    over = refusals(config, RunForecast(frozen_scenes, [], None, large), Quota())
    assert len(over) in (1, 2), "some file systems count no inodes"
    assert "it needs 1,000,000 TB more" in over[0]
    assert refusals(config, RunForecast(frozen_scenes, [], None, small), Quota()) == []


def stopped(run: Run, folder: Path) -> tuple[str, dict[str, Any]]:
    """What a plan says will stop the run, and its file."""
    completed = run("plan", "config.yaml").ends(3)
    assert "this will stop the run: " in completed.stderr.replace("run:\n", "run: ")
    assert "bug" not in completed.stderr
    return completed.stderr, json.loads((folder / "plan/plan.json").read_text())


def test_labels_that_are_missing_or_elsewhere_will_stop_the_run_and_the_rest_is_planned(folder: Path, run: Run) -> None:
    write(folder)
    (folder / "labels.tif").unlink()
    message, value = stopped(run, folder)
    assert "label.source labels.tif is missing" in message
    assert value["chips"]["train"] == {"places": 30, "chips": 90, "classes": {}}
    write_raster(folder / "labels.tif", np.zeros((9, 9), np.uint8), left=LEFT + 90_000)
    message, value = stopped(run, folder)
    assert "outside the grid" in message
    assert len(value["stops"]) == 1


def test_an_empty_split_will_stop_the_run_and_the_block_that_works_is_named(folder: Path, run: Run) -> None:
    write(folder, split={"method": "blocks", "block": 512, "fractions": [0.7, 0.15, 0.15]})
    message, value = stopped(run, folder)
    assert "1 block of 512 px on a grid of 96 x 160: at least 3 are needed; split.block: " in message
    assert len(value["stops"]) == 1
    block = int(message.partition("split.block: ")[2].split()[0])
    write(folder, split={"method": "blocks", "block": block, "fractions": [0.7, 0.15, 0.15]})
    assert planned(run, folder)["stops"] == []


def test_a_chip_that_does_not_fit_the_grid_will_stop_the_run(folder: Path, run: Run) -> None:
    write(folder, split={"chip": 128})
    message, value = stopped(run, folder)
    assert "a chip of 128 pixels does not fit into a grid of 96 x 160" in message
    assert value["needs"], "downloads and files are planned all the same"


def test_all_that_will_stop_the_run_is_listed_together(folder: Path, run: Run) -> None:
    write(folder, split={"chip": 128}, train={"architecture": "nomodule:Net"}, label={"source": "nolabels.gpkg"})
    message, value = stopped(run, folder)
    for part in ("a chip of 128 pixels", "nomodule:Net cannot be imported", "label.source nolabels.gpkg is missing"):
        assert sum(part in line for line in message.splitlines()) == 1, part
    assert len(value["stops"]) == 3


@pytest.mark.exhaustive
def test_a_training_of_few_steps_and_places_in_no_split_are_warned_of(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, train={"epochs": 10, "batch": 32})
    assert cli.main(["plan", "config.yaml"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^training length: 20 steps, [0-9.e+]+ passes over \d+ labelled pixels$", output, re.MULTILINE)
    assert "warning: the training has 20 steps, " in output
    assert "in no split" not in output
    # The advice is enough.
    steps = int(output.partition("train.steps: ")[2].split()[0])
    write(folder, train={"steps": steps, "batch": 32})
    assert planned(run, folder)["warnings"] == []
    write(folder, train={"steps": steps, "batch": 32}, split={"fractions": [0.1, 0.1, 0.1]})
    assert any("in no split" in line for line in planned(run, folder)["warnings"])


def test_a_val_split_without_a_chip_is_warned_of_with_settings_that_give_it_one(folder: Path, run: Run) -> None:
    narrow = {"method": "east-west", "fractions": [0.6, 0.05, 0.35]}
    write(folder, split=narrow)
    (sentence,) = [line for line in planned(run, folder)["warnings"] if "no validation chips" in line]
    assert "chips of 16 pixels do not fit into its strip of 8; choose a smaller split.chip" in sentence
    write(folder, split=narrow | {"fractions": [0.5, 0.15, 0.35]})
    value = planned(run, folder)
    assert value["chips"]["val"]["chips"] > 0
    assert not any("no validation chips" in line for line in value["warnings"])


def test_a_class_without_validation_pixels_is_warned_of(folder: Path, run: Run) -> None:
    write(folder)
    assert not any("the val split" in line for line in planned(run, folder)["warnings"])
    codes = write_stripes(folder / "labels.tif", SHAPE, 3)
    codes[:, 76:120] = np.where(codes[:, 76:120] == 1, 0, codes[:, 76:120])
    write_raster(folder / "labels.tif", codes.astype(np.uint8), nodata=2)
    value = planned(run, folder)
    assert value["chips"]["val"]["classes"]["b"]["pixels"] == 0
    (sentence,) = [line for line in value["warnings"] if "the val split" in line]
    assert sentence.startswith("the labels of the val split have no pixel of class b, so ")


def test_fewer_validation_chips_than_independent_pieces_of_a_calibration_are_warned_of(folder: Path, run: Run) -> None:
    write(folder, split={"method": "west-east", "chip": 32})
    value = planned(run, folder)
    count = value["chips"]["val"]["chips"] // len(value["scenes"])
    assert 0 < count < 6
    assert any(f"the val split has {count} chips: below 6 independent pieces" in line for line in value["warnings"])


def test_a_projection_whose_units_are_no_metres_of_the_ground_is_warned_of(folder: Path, run: Run) -> None:
    write(folder)
    assert not any("on the ground" in line for line in planned(run, folder)["warnings"])
    write(folder, search={"crs": "EPSG:3857", "resolution": 28})
    assert any(line.startswith("pixels of 28 m in EPSG:3857 are ") for line in planned(run, folder)["warnings"])


def test_a_grid_larger_than_memory_is_refused_in_one_sentence(folder: Path, run: Run) -> None:
    write(folder, search={"resolution": 0.001})
    completed = run("plan", "config.yaml").ends(3)
    assert completed.stderr.startswith("error: this will stop the run: the grid of 960,000 x 1,600,000 pixels")
    assert "3 scenes have 4.6e+12 pixels in it, and a plan counts at most 1e+12" in completed.stderr
    assert "coarser search.resolution" in completed.stderr
    assert completed.stderr.count("\n") == 1


def test_too_little_memory_is_not_called_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MemoryError) as caught:
        np.empty((1 << 40, 1 << 10), np.uint8)
    assert report_error(caught.value) == 6
    message = capsys.readouterr().err
    assert message.startswith("error: not enough memory: Unable to allocate 1.00 PiB")
    assert message.count("\n") == 1


def test_a_folder_of_other_files_is_not_replaced(folder: Path, run: Run) -> None:
    write(folder)
    run("plan", "config.yaml", "--out", "catalog").ends(2, "catalog contains catalog.json")
    assert (folder / "catalog/catalog.json").is_file()


def remote(
    folder: Path, web: Loopback, catalog: Catalog, *, has_sizes: bool, **changes: dict[str, Any]
) -> dict[str, Any]:
    """The scenes behind a server, whose items state sizes or not; labels are an asset of each scene."""
    for n, item in enumerate(catalog.items):
        for asset in item["assets"].values():
            asset["href"] = f"{web.url}/catalog/s{n}/{Path(asset['href']).name}"
            if not has_sizes:
                del asset["file:size"], asset["file:checksum"]
    catalog.write()
    label = {"source": None, "asset": "scl", "classes": ["land", "water"], "codes": [4, 6]}
    fetch = {"private_hosts": [urlsplit(web.url).netloc]} | changes.pop("fetch", {})
    return write(folder, label=label, preprocess={"mask": "none"}, fetch=fetch, **changes)


def test_sizes_that_items_do_not_state_are_requested_without_fetching(
    folder: Path, web: Loopback, catalog: Catalog, run: Run
) -> None:
    remote(folder, web, catalog, has_sizes=False)
    web.fail("/catalog/s1/red.tif", times=None, status=503)
    web.fail("/catalog/s2/blue.tif", times=None, ignore_range=True)
    value = planned(run, folder)
    sizes = {file.name: file.stat().st_size for file in (folder / "catalog/s1").glob("*.tif")}
    assert [row["assets_of_unknown_size"] for row in value["scenes"]] == [0, 1, 0]
    assert value["scenes"][1]["bytes"] == sizes["blue.tif"] + sizes["scl.tif"]
    assert value["scenes"][2]["bytes"] == sum(file.stat().st_size for file in (folder / "catalog/s2").glob("*.tif"))
    assert {len(web.requests(request.path)) for request in web.received} == {1}, "each file is requested once"
    assert {request.headers["Range"] for request in web.received} == {"bytes=0-0"}


def test_without_labels_and_pixels_at_hand_a_plan_has_positions_and_typical_bytes(
    folder: Path, web: Loopback, catalog: Catalog, run: Run
) -> None:
    remote(folder, web, catalog, has_sizes=True)
    value = planned(run, folder)
    assert web.received == []
    assert value["chips"]["train"] == {"places": 30, "chips": 90, "classes": {}}
    size = next(need["bytes"] for need in value["needs"] if need["name"] == "tiles")
    raw = 3 * 2 * 2 * SHAPE[0] * SHAPE[1]
    assert 0.2 * raw < size - 3 * 15_000 < 1.2 * raw


def test_tiles_have_the_same_bytes_whether_windows_or_whole_assets_are_fetched(
    folder: Path, web: Loopback, catalog: Catalog, run: Run
) -> None:
    sizes: dict[bool, dict[str, int]] = {}
    for windows in (False, True):
        part = {"search": {"bbox": [15.0, 46.04, 15.008, 46.045]}, "split": {"block": 16, "chip": 16}}
        remote(folder, web, catalog, has_sizes=True, fetch={"windows": windows}, **part)
        run("plan", "config.yaml")
        needs = json.loads((folder / "plan/plan.json").read_text())["needs"]
        sizes[windows] = {need["name"]: need["bytes"] for need in needs}
    assert sizes[True]["tiles"] == sizes[False]["tiles"]
    assert sizes[True]["scenes"] < sizes[False]["scenes"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared scenes are not here")
def test_bytes_of_tiles_are_nearly_right_from_the_sizes_of_assets_alone(tmp_path: Path) -> None:
    config = load(ROOT / "config/examples/clouds-33t.yaml")
    for name, value in (("catalog", SHARED), ("ids", ("S2A_33TWL_20230818_0_L2A",))):
        config["search"][name] = value
    config["results"] = str(tmp_path)
    frozen_scenes = find_scenes(config)
    typical = typical_size(
        config, frozen_scenes, asset_sizes(list(frozen_scenes.items.values()), SHARED, FetchSession())
    )
    sampled = sample_size(config, frozen_scenes)
    assert sampled
    assert typical.rate == pytest.approx(sampled.rate, rel=0.3)


@pytest.mark.parametrize("by", ["place", "scene"])
def test_a_pixel_tests_once_in_each_map(folder: Path, by: str) -> None:
    write(folder, split={"method": "group", "by": "scene", "fractions": [0.4, 0.3, 0.3]} if by == "scene" else {})
    chips = forecast_run(load(folder / "config.yaml")).chips
    assert chips
    in_chips = sum(pixels for *_, pixels in chips.class_counts("test"))
    # Of blocks all three scenes have one map.
    assert chips.tested_pixels == in_chips // (1 if by == "scene" else 3) > 0


def test_windows_are_counted_by_the_area_that_the_grid_needs(folder: Path, catalog: Catalog, run: Run) -> None:
    # Twenty kilometres, of which the grid needs the first three.
    del catalog.items[:]
    catalog.add(
        "wide", {"blue": sprinkled(0, (2000, 2000)), "scl": np.full((2000, 2000), 4, np.uint8)}, shape=(2000, 2000)
    )
    catalog.write()
    search = {"assets": ["blue", "scl"], "bbox": [15.0, 46.03, 15.02, 46.05], "crs": CRS, "resolution": 10}
    write(folder, search=search, preprocess={"bands": ["blue"]}, fetch={"windows": True}, label={"classes": ["a", "b"]})
    total = sum(asset["file:size"] for asset in catalog.items[0]["assets"].values())
    part = planned(run, folder)["fetch"]["bytes"]
    assert 0.03 * total < part < 0.3 * total


def test_the_map_as_geojson_has_the_grid_and_every_scene(folder: Path, run: Run) -> None:
    write(folder)
    planned(run, folder)
    value = json.loads((folder / "plan/plan.geojson").read_text())
    kinds = [feature["properties"]["kind"] for feature in value["features"]]
    assert kinds == ["grid", "scene", "scene", "scene"]
    assert value["features"][0]["properties"] == {"kind": "grid", "crs": CRS, "height": 96, "width": 160}
    west, north = np.array(value["features"][0]["geometry"]["coordinates"][0]).min(0)[0], 46.05
    assert west == pytest.approx(15.0, abs=1e-3)
    assert np.array(value["features"][1]["geometry"]["coordinates"][0])[:, 1].max() == pytest.approx(north, abs=0.01)


def test_the_picture_shows_each_split_in_its_colour(folder: Path, run: Run) -> None:
    write(folder)
    planned(run, folder)
    pixels = np.asarray(Image.open(folder / "plan/plan.png").convert("RGB"))
    assert pixels.shape[1] == 1400
    shares = [(pixels == color).all(-1).mean() for color in ((59, 143, 208), (176, 111, 196), (240, 161, 26))]
    assert shares[0] > shares[2] > shares[1] > 0.005


def test_scenes_without_cloud_cover_are_planned_too(folder: Path, catalog: Catalog, run: Run) -> None:
    catalog.items[1]["properties"] = {"datetime": "2023-06-01T00:00:00Z", "proj:code": CRS}
    del catalog.items[2]["properties"]["eo:cloud_cover"]
    catalog.write()
    write(folder)
    value = planned(run, folder)
    assert [row["cloud"] for row in value["scenes"]] == [0.0, None, None]


@given(
    shape=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    chunk=st.sampled_from([16, 32]),
    times=st.integers(1, 3),
    bands=st.integers(1, 3),
)
@settings(max_examples=20)
def test_the_files_of_a_store_are_counted_exactly(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, int], chunk: int, times: int, bands: int
) -> None:
    layout = Layout(chunk, chunk * times)
    grid = make_grid((LEFT, TOP - STEP * shape[0], LEFT + STEP * shape[1], TOP), CRS, STEP, (LEFT, TOP))
    target = tmp_path_factory.mktemp("store") / "s.zarr"
    with new_store(target, grid, ("a",), "s", {}) as group:
        add_array(group, "image", (bands, *shape), "uint16", layout)[...] = 1
        add_array(group, "valid", shape, "uint8", layout)[...] = 1
    assert store_files(shape, layout, 2) == len(files(target)) + 1


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("5", 5), ("1.5kB", 1500), ("2 MB", 2_000_000), ("3GiB", 3 << 30), ("1T", 10**12)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_other_text_than_a_size_is_refused(folder: Path, run: Run) -> None:
    write(folder)
    for text in ("many", "5 parsecs", "1.2.3MB", "-1"):
        run("plan", "config.yaml", f"--max-bytes={text}").ends(
            2, f"{text!r} is not a size; write a number with a unit, such as 500MB or 2TiB"
        )


@given(st.integers(0, 10**16))
def test_bytes_are_written_with_three_digits(size: int) -> None:
    number, unit = format_bytes(size).replace(",", "").split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.006)


@given(
    zone=st.sampled_from(["EPSG:32633", "EPSG:32735", "EPSG:3857", "EPSG:4326"]),
    across=st.floats(10, 2000),
    down=st.floats(10, 2000),
)
@settings(max_examples=30)
def test_the_map_of_a_plan_shows_the_whole_grid_with_some_of_its_surroundings(
    zone: str, across: float, down: float
) -> None:
    step = 1e-4 if zone == "EPSG:4326" else 10.0
    left, top = (15.0, 46.0) if zone == "EPSG:4326" else (4e5, 5e6)
    grid = make_grid((left, top - down * step, left + across * step, top), zone, step, (left, top))
    box, size = grid.extent.boundingbox, max(grid.shape) * step
    bounds = figure_bounds(grid_extent(grid), [np.array([[left - 1e5, top + 1e5]])])
    margins = (box.left - bounds[0], box.bottom - bounds[1], bounds[2] - box.right, bounds[3] - box.top)
    assert min(margins) > 0.05 * size
    assert max(margins) < 0.7 * size, "however far a footprint reaches"


def test_a_frozen_list_is_used_if_it_was_written_with_these_settings(folder: Path, run: Run) -> None:
    write(folder)
    arguments = ("--catalog", "catalog", "--assets", "blue", "red", "scl", *BANDS)
    assert run("search", *search_outputs(Path("results")), *arguments).code == 0
    assert find_scenes(write(folder)).is_frozen
    totals = planned(run, folder)["totals"]
    assert totals["inodes"] - totals["inodes_to_write"] == len([*Path("results").rglob("*")]) + 1
    assert not find_scenes(write(folder, search={"max_cloud": 50})).is_frozen
    shutil.copytree(folder / "catalog", folder / "other")
    assert not find_scenes(write(folder, search={"catalog": "other"})).is_frozen
    record = json.loads((folder / "results/items.run.json").read_text())
    (folder / "results/items.run.json").write_text(json.dumps(record | {"status": "failed"}))
    assert not find_scenes(write(folder)).is_frozen


def test_a_plan_shows_which_class_each_value_of_the_labels_becomes(folder: Path, run: Run) -> None:
    config = write(folder)
    lines = forecast_lines(config, forecast_run(config))
    first = next(number for number, line in enumerate(lines) if line.startswith("label value"))
    assert [line.split()[::2] for line in lines[first : first + 3]] == [["label", "pixels"], ["0", "a"], ["1", "b"]]
    write_stripes(folder / "labels.tif", SHAPE, 3, nodata=None)
    run("plan", "config.yaml").ends(3, "belong to no class", "set label.codes: [1, 2] and label.ignore: [0]")


def test_polygons_that_the_split_divides_stop_the_run_before_it_begins(folder: Path, run: Run) -> None:
    # Fields of the whole width, so that strips from west to east divide each.
    transform = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    corners = [(LEFT, TOP - STEP * row, LEFT + STEP * SHAPE[1], TOP - STEP * (row + 20)) for row in (0, 30, 60)]
    fields = [shapely.transform(box(*bounds), transform.transform, interleaved=False) for bounds in corners]
    write_features(folder / "labels.geojson", *zip(fields, ({"class": name} for name in "aba"), strict=True))
    label = {"source": "labels.geojson", "attribute": "class"}
    write(folder, label=label)
    run("plan", "config.yaml").ends(
        3,
        "this will stop the run: split: the split leaks. polygon (3 times): 3 of 3 polygons",
        "split.by: polygon keeps each whole",
    )
    write(folder, label=label, split={"allow": ["polygon: each field has several soils"]})
    assert run("plan", "config.yaml").code == 0


def write_squares(folder: Path, classes: str = "ab") -> list[tuple[float, float]]:
    """Polygons of four pixels, of the classes by turns; their upper left corners."""
    transform = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    corners = [(LEFT + STEP * col, TOP - STEP * row) for row in range(8, 90, 16) for col in range(8, 150, 16)]
    squares = [box(x, y - 2 * STEP, x + 2 * STEP, y) for x, y in corners]
    shapes = [shapely.transform(square, transform.transform, interleaved=False) for square in squares]
    rows = ((shape, {"class": classes[n % len(classes)]}) for n, shape in enumerate(shapes))
    write_features(folder / "labels.geojson", *rows)
    return corners


def test_the_numbers_of_polygons_and_a_probability_of_each_class_are_planned(folder: Path, run: Run) -> None:
    write(folder)
    of_two = {row["name"]: row for row in planned(run, folder)["needs"]}
    write_squares(folder, "abcd")
    label = {"source": "labels.geojson", "attribute": "class", "classes": list("abcd")}
    config = write(folder, label=label, split={"method": "group", "by": "polygon"})
    document = planned(run, folder)
    of_four = {row["name"]: row for row in document["needs"]}
    # Two classes have three numbers in each pixel of a map, with their spread, and four have five.
    pixels = SHAPE[0] * SHAPE[1]
    rates = [(row["maps"]["bytes"] - MAP_BYTES) / pixels for row in (of_two, of_four)]
    assert rates[1] == pytest.approx(5 / 3 * rates[0], rel=0.01)
    write_json(folder / "grid.json", document["grid"])
    stage("label").run(grid=folder / "grid.json", labels=folder / "all.zarr", **config["label"])
    # With the folder of the stores, and without the record of the job.
    assert of_four["labels"]["inodes"] == 2 + len([*(folder / "all.zarr").rglob("*")])
    assert of_four["labels"]["inodes"] > of_two["labels"]["inodes"]


def test_the_map_of_a_plan_shows_split_polygons(folder: Path, run: Run) -> None:
    corners = write_squares(folder)
    label, by_polygon = {"source": "labels.geojson", "attribute": "class"}, {"method": "group", "by": "polygon"}
    config = write(folder, label=label, split=by_polygon)
    forecast = next(forecast_splits(config, find_scenes(config), [config["split"]]))
    assert not forecast.stops
    # Each polygon is drawn where it is, once.
    pixels = {
        (int(row), int(col)) for name in splits.SPLITS for row, col in (o.min(0) for o in forecast.outlines(name))
    }
    assert pixels == {(round((TOP - y) / STEP), round((x - LEFT) / STEP)) for x, y in corners}
    planned(run, folder)
    with Image.open(folder / "plan/plan.png") as picture:
        colors = np.asarray(picture.convert("RGB"))
    # Without the legend at the right.
    drawn = colors[:, : colors.shape[1] // 2]
    for name, color in zip(splits.SPLITS, SPLIT_COLORS, strict=True):
        assert (drawn == rgb(color)).all(-1).sum() > 30, name
