"""An ensemble of members with other seeds: one mean map, scores of each member, the same bytes under CWL."""

from pathlib import Path

import numpy as np
import pytest
import rasterio
from projects import DAYS, ROOT, Project, by_cwltool

from eopipe.arrays import AnyArray
from eopipe.models.model_folder import read_model_card
from eopipe.publish import sha256
from eopipe.text_files import read_json

MEMBERS = 3

# One run for all of them.
pytestmark = pytest.mark.exhaustive(by="members")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("members")
    (folder / "sample").symlink_to(ROOT / "sample")
    project = Project(folder)
    project.write(search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:2]]}, train={"epochs": 2, "processes": 1})
    with (folder / "config.yaml").open("a") as config:
        config.write(f"members: {MEMBERS}\n")
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    return project


def read(path: Path) -> AnyArray:
    """All bands of a map."""
    with rasterio.open(path) as file:
        return np.asarray(file.read())


def test_the_map_is_the_mean_of_the_maps_of_the_members(ensemble: Project) -> None:
    maps = [read(ensemble.results / f"members/maps-member-{n}/mosaic/probabilities.tif") for n in range(MEMBERS)]
    models = [ensemble.results / f"members/model-member-{n}" for n in range(MEMBERS)]
    seeds = [read_model_card(folder)["settings"]["seed"] for folder in models]
    assert seeds == [0, 1, 2]
    assert not np.array_equal(maps[0], maps[1])
    # The area of the sample is one window, which has test places, so that the members map all of it.
    mean = np.mean([of_member[:2] for of_member in maps], axis=0)
    classes = read(ensemble.results / "maps/mosaic/classes.tif")[0]
    is_clear = (classes != 255) & (np.abs(mean[0] - mean[1]) > 2)
    assert is_clear.mean() > 0.9
    assert np.array_equal(classes[is_clear], mean.argmax(0)[is_clear])
    # The spread is the last band: the deviation of the members for the class of the map.
    deviations = np.std([of_member[:2] for of_member in maps], axis=0)
    spread = read(ensemble.results / "maps/mosaic/probabilities.tif")[-1]
    expected = np.take_along_axis(deviations, classes[None].astype(np.int64), 0)[0]
    assert np.abs(spread[is_clear] - expected[is_clear]).max() <= 1


def test_the_scores_of_the_members_are_beside_those_of_their_mean(ensemble: Project) -> None:
    metrics = read_json(ensemble.results / "metrics.json")
    members = [row["scores"]["accuracy"] for row in metrics["members"]]
    assert len(members) == MEMBERS
    assert len({metrics["model"]["accuracy"], *members}) > 1
    page = (ensemble.results / "report.html").read_text()
    assert f"{np.mean(members):.3f}" in page
    assert (ensemble.results / "crate/model-member-2/model.safetensors").is_file()
    assert ensemble.planned() == []


def test_an_ensemble_is_the_same_bytes_under_cwltool(ensemble: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(ensemble, tmp_path)
    for name in ("model/manifest.json", "metrics.json", "report.html"):
        assert sha256(outputs / name) == sha256(ensemble.results / name), name
    assert sha256(outputs / "classes.tif") == sha256(ensemble.results / "maps/mosaic/classes.tif")
