"""The second real input: clouds and shadows from the shared catalog, labels of each scene, and a correct plan."""

import json
from pathlib import Path

import pytest
import yaml
from projects import ROOT, Project
from test_planned_run import check_plan

CATALOG = ROOT.parent / "shared/data"
SCENES = ("S2A_33TWL_20230818_0_L2A", "S2A_33TWM_20230818_0_L2A")


@pytest.mark.exhaustive
@pytest.mark.skipif(not CATALOG.is_dir(), reason="the shared catalog is not beside the checkout")
def test_two_scenes_of_the_cloud_example_are_planned_correctly_and_mapped_one_by_one(
    tmp_path: Path,
) -> None:
    config = yaml.safe_load((ROOT / "config/examples/clouds-33t.yaml").read_text())
    config["search"] |= {"catalog": str(CATALOG), "ids": list(SCENES)}
    config["train"] |= {"epochs": 4, "width": 8}
    config |= {"results": "results", "state": "state"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    check_plan(Project(tmp_path))
    metrics = json.loads((tmp_path / "results/metrics.json").read_text())
    assert (metrics["maps"], metrics["classes"]) == (2, ["clear", "shadow", "cloud"])
    assert metrics["model"]["accuracy"] > metrics["majority"]["accuracy"] + 0.1
    maps = sorted(path.name for path in (tmp_path / "results/maps").iterdir())
    assert maps == list(SCENES)
