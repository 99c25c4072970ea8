"""The pipeline on composites instead of scenes: one image a season, from the tiles to the crate."""

import json

import pytest
from projects import Project

from eopipe.tiles.store import Tiles

# One run for all of them.
pytestmark = pytest.mark.exhaustive(by="composed run")


def test_a_run_on_seasonal_medians_ends_with_a_crate_that_describes_them(composed: Project) -> None:
    composites = {
        path.name: Tiles(path).attributes["scenes"] for path in (composed.results / "composites").glob("*.zarr")
    }
    assert composites == {
        "2017-MAM.zarr": ["S2_ROMANIA_20170412"],
        "2017-JJA.zarr": ["S2_ROMANIA_20170621"],
        "2018-MAM.zarr": ["S2_ROMANIA_20180422"],
        "2018-JJA.zarr": ["S2_ROMANIA_20180701"],
        "2018-SON.zarr": ["S2_ROMANIA_20180919"],
        "2019-JJA.zarr": ["S2_ROMANIA_20190616"],
    }
    split = json.loads((composed.results / "split.json").read_text())
    assert split["scenes"] == sorted(name.removesuffix(".zarr") for name in composites)
    assert json.loads((composed.results / "metrics.json").read_text())["test_pixels"] > 0
    crate = (composed.results / "crate/ro-crate-metadata.json").read_text()
    assert crate.count('"eopipe composite"') >= 1
    assert composed.planned() == []


def test_seasons_as_bands_come_with_a_change_of_the_config_and_keep_the_tiles(project: Project) -> None:
    stack = {"method": "clearest", "period": "all", "stack": "season", "parts": ["MAM", "JJA"]}
    project.write(composite=stack)
    result = project.run("--", "results/split.json")
    assert result.returncode == 0, result.stdout
    store = Tiles(project.results / "composites/all.zarr")
    assert store.names[0] == "blue_MAM"
    assert store.names[-1] == "nir_JJA"
    assert "S2_ROMANIA_20180919" not in store.attributes["scenes"]
    project.write(composite=stack | {"method": "median"})
    planned = project.planned("--", "results/split.json")
    assert sorted(planned) == ["composite", "split"]
    project.write(composite=stack | {"memory_mb": 7})
    assert project.planned("--", "results/split.json") == []


def test_labels_of_each_scene_are_refused_before_any_job(project: Project) -> None:
    project.write(composite={"method": "median"}, label={"source": None, "asset": "scl", "bins": []})
    result = project.run()
    assert result.returncode == 1
    assert "composite.method median combines scenes" in result.stdout
    assert not project.results.exists()
