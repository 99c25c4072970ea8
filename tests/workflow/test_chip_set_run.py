"""A run of 504 chips in twelve UTM zones around the world, alike in two engines."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import yaml
from chip_files import EDGE, accuracy_of_maps, write_regions, write_world
from projects import Project, by_cwltool, environment

from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.splits import read_split
from eopipe.models.model_folder import read_trained_model
from eopipe.tiles.store import Tiles

# One run for all of them.
IN_ONE_SLICE = pytest.mark.exhaustive(by="chip set run")

ZONES, CHIPS = 12, 42
CONFIG = {
    "chip_set": "world",
    "import": {"root": "files", "images": "images/*.tif", "masks": "masks/*.tif", "classes": ["land", "water"]},
    "split": {
        "method": "group",
        "by": "region",
        "regions": "regions.geojson",
        "attribute": "name",
        "val_groups": ["zone03", "zone07"],
        # 180 degrees cuts the chips of zone00.
        "test_groups": ["zone00", "zone05"],
        "allow": ["near-duplicate: of 504 made-up patterns a few are alike by chance"],
    },
    "train": {"epochs": 4, "batch": 16, "width": 8, "depth": 2, "processes": 1},
}


def eopipe(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("chips"))
    write_world(project.folder / "files", ZONES, CHIPS)
    write_regions(project.folder / "regions.geojson", ZONES)
    (project.folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    # The rest of it is checked once the chips are packed.
    sentence = "world is not packed yet, so its split is unchecked; `eopipe run world.run.json` packs it alone"
    assert eopipe(project.folder, "check").stdout == f"warning: {sentence}\nconfig.yaml is valid\n"
    unplanned = eopipe(project.folder, "plan")
    assert (unplanned.returncode, unplanned.stderr) == (2, f"error: {sentence}\n")
    packed = project.run("world.run.json")
    assert packed.returncode == 0, packed.stdout
    assert len([path for path in (project.folder / "world").rglob("*") if path.is_file()]) <= 60
    assert eopipe(project.folder, "check").stdout == "config.yaml is valid\n"
    result = project.run()
    assert result.returncode == 0, result.stdout
    return project


def stores(project: Project, kind: str) -> list[Path]:
    return sorted((project.folder / "world" / kind).glob("*.zarr"))


def test_chips_are_split_by_their_regions_on_the_ground(mapped: Project) -> None:
    split = read_split(mapped.results / "split.json")
    places = ChipPlaces.of([Tiles(path) for path in stores(mapped, "tiles")])
    assert places is not None
    zones = {
        name: {places.records[number]["id"][:3] for number in places.indices(rows)}
        for name, rows in split.samples.items()
    }
    assert zones["test"] == {"z00", "z05"}
    assert zones["val"] == {"z03", "z07"}
    assert zones["train"] == {f"z{number:02d}" for number in range(ZONES)} - zones["test"] - zones["val"]
    assert sum(map(len, split.samples.values())) == ZONES * CHIPS
    # Neighbouring zones are 30 degrees apart: at 45 degrees north more than 2,000 km.
    assert split.audit.gap_pixels["train-test"] > 200_000


def calibrated_shares(shares: np.ndarray, temperature: float) -> np.ndarray:
    powers = shares ** (1 / temperature)
    return np.asarray(powers / powers.sum(1, keepdims=True))


def test_each_chip_is_mapped_by_itself_and_scored_at_its_place(mapped: Project) -> None:
    import torch

    metrics = json.loads((mapped.results / "metrics.json").read_text())
    (tiles,), maps = stores(mapped, "tiles"), sorted(mapped.results.glob("maps/*/classes.tif"))
    expected = accuracy_of_maps(maps, stores(mapped, "labels"), mapped.results / "split.json")
    assert 0.95 < metrics["model"]["accuracy"] == pytest.approx(expected, abs=1e-6)
    assert metrics["test_pixels"] == 2 * CHIPS * EDGE**2
    assert "whole groups" in metrics["intervals"]["method"]
    assert metrics["intervals"]["pieces"] == 2, "two test zones are too few for an interval"
    assert metrics["intervals"]["model"]["accuracy"] is None
    trained = read_trained_model(mapped.results / "model")
    model, store = trained.build(mapped.results / "model").eval(), Tiles(tiles)
    image, valid = store.read("image"), store.read("valid") > 0
    with rasterio.open(maps[0]) as file:
        numbers = file.read(1)
    slots = [np.s_[row : row + EDGE, left : left + EDGE] for row in range(0, 320, EDGE) for left in range(0, 320, EDGE)]
    normal = np.stack([trained.normaliser(image[:, *slot], store.scaling, valid[slot]) for slot in slots])
    with torch.inference_mode():
        shares = torch.softmax(model(torch.from_numpy(normal)), 1).numpy()
    calibration = json.loads((mapped.results / "calibration.json").read_text())
    assert (calibration["maps"], calibration["pixels"]) == ("each image", 2 * CHIPS * EDGE**2)
    with rasterio.open(maps[0].with_name("probabilities.tif")) as file:
        # Two validation zones are too few to say that probabilities are wrong.
        assert float(file.tags()["temperature"]) == calibration["temperature"] == 1
        # The third band is the spread of the members.
        stored = file.read([1, 2]) / 10_000
    published = np.stack([stored[:, *slot] for slot in slots])
    np.testing.assert_allclose(published, calibrated_shares(shares, calibration["temperature"]), atol=1e-3)
    mapped_numbers = np.stack([numbers[slot] for slot in slots])
    is_clear = np.abs(shares[:, 0] - shares[:, 1]) > 1e-4
    assert (mapped_numbers == shares.argmax(1))[is_clear].all()
    assert is_clear.mean() > 0.999


def test_the_map_of_a_chip_is_written_at_its_place(mapped: Project) -> None:
    map_of_store = mapped.results / "maps/chips-0000/classes.tif"
    written = eopipe(
        mapped.folder, "tiles", "export", "world/tiles", "z00-7.tif", "--chip", "z00-7", "--map", map_of_store
    )
    assert written.stdout == "wrote z00-7.tif: class\n", written.stderr
    with (
        rasterio.open(mapped.folder / "z00-7.tif") as part,
        rasterio.open(mapped.folder / "files/masks/z00-7.tif") as mask,
    ):
        assert (part.crs, part.transform, part.shape) == (mask.crs, mask.transform, mask.shape)
        assert (part.read() == mask.read()).mean() > 0.9
        assert part.colormap(1)[0] != part.colormap(1)[1]
    traced = eopipe(mapped.folder, "lineage", f"{map_of_store}#pixel=33,40").stdout
    assert "1 chips of 32 pixels, of 1 scenes, at row 32, column 32" in traced
    assert "in a slot of chips-0000.zarr: chips.json of the chip set names the chip" in traced
    assert "train " in traced
    assert "from 0 scenes" not in traced


def test_report_cards_catalog_and_crate_are_of_chips(mapped: Project) -> None:
    card = (mapped.results / "data-card.md").read_text()
    assert "504 chips of world, unknown dates: chips in slots of 32" in card
    assert "12 CRSs" in card
    assert "0 scenes" not in (mapped.results / "report.html").read_text() + card
    item = json.loads((mapped.results / "catalog/tiles/chips-0000/chips-0000.json").read_text())
    assert not {"proj:code", "proj:transform"} & item["properties"].keys()
    assert (item["bbox"][2] - item["bbox"][0]) % 360 == pytest.approx(327, abs=0.01)
    graph = json.loads((mapped.results / "crate/ro-crate-metadata.json").read_text())["@graph"]
    action = next(entity for entity in graph if entity["@id"] == "#job/import")
    assert sum(row["@id"].startswith("#sha256/") for row in action["object"]) == 2 * ZONES * CHIPS
    traced = eopipe(mapped.folder, "lineage", "results/crate/metrics.json").stdout
    assert "\n  import  " in traced, traced
    assert "and 959 more" in traced, traced
    assert eopipe(mapped.folder, "verify", "results").returncode == 0
    assert mapped.planned() == []


@IN_ONE_SLICE
def test_cwltool_makes_the_same_maps_and_scores(mapped: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(mapped, tmp_path, with_onnx=False, with_report=False, with_crate=False)
    pairs = {name: name for name in ("metrics.json", "model/manifest.json", "split.json")}
    pairs |= {f"{kind}-chips-0000.zarr.tif": f"maps/chips-0000/{kind}.tif" for kind in ("classes", "probabilities")}
    for file, result in pairs.items():
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (outputs / file, mapped.results / result)]
        assert digests[0] == digests[1], file


@IN_ONE_SLICE
def test_a_chip_that_changed_is_packed_again_and_a_failure_leaves_the_set_as_it_was(mapped: Project) -> None:
    path, before = mapped.folder / "files/masks/z01-1.tif", (mapped.folder / "world/chips.json").read_bytes()
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    failed = mapped.run("world.run.json")
    assert failed.returncode == 1
    assert "import failed: " in failed.stdout
    assert "masks/z01-1.tif" in failed.stdout
    assert (mapped.folder / "world/chips.json").read_bytes() == before
    path.write_bytes(whole)
    with rasterio.open(path, "r+") as mask:
        mask.write(1 - mask.read())
    assert {"import", "split", "train", "evaluate", "report", "crate"} <= {*mapped.planned()}
    packed = mapped.run("world.run.json")
    assert packed.returncode == 0, packed.stdout
    assert {"split", "train", "predict", "evaluate", "report", "crate"} <= {*mapped.planned()}


@IN_ONE_SLICE
def test_a_set_is_not_replaced_while_a_run_reads_it(mapped: Project) -> None:
    patterns = ("--images", "files/images/*.tif", "--masks", "files/masks/*.tif", "--classes", "water", "land")
    run = mapped.command("--forcerun", "train", "--", "results/model/manifest.json")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(run, cwd=mapped.folder, env=environment(), **pipes) as process:
        assert process.stdout is not None
        assert any("training starts" in line for line in process.stdout)
        before = (mapped.folder / "world/chips.json").read_bytes()
        refused = eopipe(mapped.folder, "import", "world", *patterns)
        assert (refused.returncode, process.poll()) == (2, None), refused.stderr
        assert "world is not replaced, for a run reads it" in refused.stderr
        assert (mapped.folder / "world/chips.json").read_bytes() == before
        process.stdout.read()
    assert process.returncode == 0


@IN_ONE_SLICE
def test_sections_that_a_chip_set_replaces_are_refused(mapped: Project, tmp_path: Path) -> None:
    (tmp_path / "chips").symlink_to(mapped.folder / "world")
    config = {"chip_set": "chips", "search": {"catalog": "stac"}, "label": {"classes": ["a", "b"]}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    refused = eopipe(tmp_path, "check")
    assert refused.returncode == 2
    assert "the tiles and labels of chip_set are used as they are; remove the sections search, label" in refused.stderr


@IN_ONE_SLICE
def test_sentences_about_an_import_name_its_settings(tmp_path: Path) -> None:
    for section, sentence in (
        ({"images": "a/*.tif"}, "import needs import.images, import.masks and import.classes, or import.folders"),
        ({"folders": ".", "images": "a/*.tif"}, "import.folders excludes import.images"),
        ({"images": "a/*.tif", "masks": "b/*.tif", "classes": ["x", "y"]}, "no file matches a/*.tif"),
    ):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"chip_set": "chips", "import": section}))
        refused = eopipe(tmp_path, "check")
        assert refused.returncode in (2, 3)
        assert sentence in refused.stderr
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"import": {"folders": "files"}}))
    assert "set chip_set, the folder to write" in eopipe(tmp_path, "check").stderr
