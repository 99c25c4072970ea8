"""A new task is one file: the whole pipeline runs with it, and nobody else has to know it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import DAYS, ROOT, Project, cold_environment

# Pixels with one class as in segmentation, with other losses and scores of its own.
TASK = '''"""The task with one class for each pixel, of which the rare ones count."""

from dataclasses import dataclass
from typing import ClassVar

from eopipe.tasks.segmentation import ClassTask
from eopipe.tasks.task import NamedScore


@dataclass(frozen=True, kw_only=True)
class CoverTask(ClassTask):
    """One class for each pixel; the mean F1 chooses."""

    scores: ClassVar[tuple[NamedScore, ...]] = (
        NamedScore("f1_macro", "Mean F1 of the covers", is_main=True, in_verdict=True, hub="f1"),
        NamedScore("accuracy", "Accuracy", in_verdict=True, hub="accuracy"),
        NamedScore("miou", "mIoU", hub="mean_iou"),
    )
    explanation: ClassVar[str] = "Covers are compared by the mean of their F1."


TASK = CoverTask(
    name="cover",
    is_of_chips=False,
    losses=("focal", "cross_entropy"),
    mlm=("semantic-segmentation", ("batch", "class", "height", "width")),
    hub="image-segmentation",
)
'''


@pytest.mark.exhaustive
def test_a_new_task_is_one_file_and_runs_from_the_sample_to_its_report(project: Project, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("eopipe", "workflow", "config", "sample"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "constraints.txt"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "eopipe/tasks/cover.py").write_text(TASK)
    train = {"task": "cover", "steps": 12, "averaged_with": ["none"], "processes": 1}
    project.write(search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:3]]}, train=train | {"epochs": None})

    def run(*words: str) -> str:
        command, environment = [sys.executable, "-m", "eopipe", *words], cold_environment()
        environment |= {"PYTHONPATH": str(checkout)}
        done = subprocess.run(
            command, cwd=project.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "classification, cover, multilabel" in " ".join(run("train", "--help").split())
    run("check", "config.yaml")
    run("run", "--configfile", "config.yaml", "--cores", "2")
    metrics = json.loads((project.results / "metrics.json").read_text())
    assert (metrics["task"], metrics["test_pixels"] > 0) == ("cover", True)
    assert json.loads((project.results / "model/model.json").read_text())["properties"]["mlm:hyperparameters"][
        "loss"
    ] == ("focal")
    page, card = ((project.results / name).read_text() for name in ("report.html", "model-card.md"))
    assert '<th scope="col">Mean F1 of the covers</th><th scope="col">Accuracy</th><th scope="col">mIoU</th>' in page
    assert "Covers are compared by the mean of their F1." in page
    assert "| task | cover |" in card
    assert (project.results / "crate/manifest.json").is_file()
