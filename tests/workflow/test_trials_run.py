"""Trials of the training: one run with the best of them, what a change runs again, both engines, after kills."""

import random
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from projects import DAYS, ROOT, Project, by_cwltool, environment, kill_tree

from eopipe.publish import sha256
from eopipe.text_files import read_json

pytestmark = pytest.mark.exhaustive(by="trials")
NET = """\
from torch import nn

class Net(nn.Module):
    factor, reach = 1, 1

    def __init__(self, bands, classes):
        super().__init__()
        self.conv = nn.Conv2d(bands, classes, 3, padding=1)

    def forward(self, x):
        return self.conv(x)
"""
WIDTH = {"choices": [4, 8], "when": {"architecture": "unet"}}
SPACE = {"architecture": ["unet", "net.py:Net"], "width": WIDTH}
TRAIN = {"epochs": 4, "batch": 8, "processes": 1, "architecture": "net.py:Net"}
HALTON = {
    "space": {**SPACE, "learning_rate": {"low": 0.001, "high": 0.03, "log": True}},
    "sampler": "halton",
    "count": 3,
    # Of its points one has each of the models.
    "seed": 1,
}
# Without them a run has a trial for each architecture.
RUNGS = [0.3, 0.6]
SCENES = [f"S2_ROMANIA_{day}" for day in DAYS[:2]]


def write(folder: Path, **trials: Any) -> Project:
    """A project with trials, by default of a built-in model and of one of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "sample").symlink_to(ROOT / "sample")
    (folder / "net.py").write_text(NET)
    project = Project(folder)
    configure(project, **trials or {"space": SPACE})
    return project


def configure(project: Project, **trials: Any) -> None:
    project.write(search={"ids": SCENES}, train=TRAIN, trials={**trials, "rungs": RUNGS})


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = write(tmp_path_factory.mktemp("trials") / "project")
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    return project


def trials_of_first_rung(project: Project) -> list[str]:
    """The trials that a dry run trains from their first step on."""
    output = project.run("--dry-run").stdout
    return re.findall(r"wildcards: rung=0, trial=(\w+)", output) + re.findall(r"wildcards: trial=(\w+), rung=0", output)


def named_by(project: Project, **settings: object) -> str:
    rows = read_json(project.results / "trials.json")["trials"]
    return next(str(row["name"]) for row in rows if settings.items() <= row["settings"].items())


def test_the_model_of_the_run_is_the_best_trial_and_the_report_has_them_all(tried: Project) -> None:
    document = read_json(tried.results / "trials.json")
    scores = [row["scores"]["miou"] for row in document["trials"]]
    assert len(scores) == 3
    assert scores[1:] == sorted(scores[1:], reverse=True)
    assert document["chosen"] == document["trials"][0]["name"]
    # Of three trials two continue behind the first rung, and one behind the second.
    assert [row["stopped"] for row in document["trials"]] == [False, True, True]
    steps = [row["steps"] for row in document["trials"]]
    assert steps[0] == document["trials"][0]["all_steps"] > max(steps[1:]) > min(steps[1:])
    for row in document["trials"]:
        logs = "".join(path.read_text() for path in tried.results.glob(f"logs/train/*{row['name']}.log"))
        validated = re.findall(r"event=validation step=(\d+)", logs)
        assert sorted({*validated}) == sorted(validated), "no step is taken twice"
        assert max(map(int, validated)) == row["steps"]
    of_trial = tried.results / f"trials/model-trial-{document['chosen']}"
    assert sha256(tried.results / "model/model.safetensors") == sha256(of_trial / "model.safetensors")
    assert read_json(tried.results / "model/trials.json") == document
    page, card = ((tried.results / name).read_text() for name in ("report.html", "model-card.md"))
    for row in document["trials"]:
        assert row["name"] in page
        assert row["name"] in card
        assert (tried.results / f"crate/model-trial-{row['name']}/model.safetensors").is_file()
    # The test places see the chosen model alone: a map of a trial is of the validation places.
    assert len([*tried.results.glob("trials/maps-*/mosaic/classes.tif")]) == 3
    assert len([*tried.results.glob("**/metrics.json.run.json")]) == 1
    assert tried.planned() == []


def test_the_times_of_a_trial_are_in_the_run_record_of_each_of_its_trainings(tried: Project) -> None:
    for row in read_json(tried.results / "trials.json")["trials"]:
        folders = [tried.results / "trials" / name for name in ("rung-0", "rung-1", "")]
        records = [read_json(folder / f"model-trial-{row['name']}.run.json") for folder in folders]
        times = [record[key] for record in records for key in ("start", "end")]
        # A rung begins when the one before has ended.
        assert times == sorted(times)
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", time) for time in times)
        assert not {"start", "end"} & row.keys()


@pytest.mark.exhaustive
def test_another_line_of_the_own_model_trains_its_trial_again_and_another_value_trains_one_more(
    tried: Project, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project")
    shutil.copytree(tried.folder, project.folder, symlinks=True)
    (project.folder / "net.py").write_text(NET.replace("return self.conv(x)", "return self.conv(x) * 2"))
    assert trials_of_first_rung(project) == [named_by(project, architecture="net.py:Net")]
    assert project.planned().count("choose") == 1
    (project.folder / "net.py").write_text(NET)
    # A new modification time makes no job.
    assert project.planned() == []
    wider = {**SPACE, "width": WIDTH | {"choices": [8, 4, 12]}}
    configure(project, space=wider)
    (new,) = trials_of_first_rung(project)
    assert new not in {row["name"] for row in read_json(project.results / "trials.json")["trials"]}


def test_trials_are_the_same_bytes_under_cwltool(tried: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(tried, tmp_path)
    for name in ("trials.json", "trials.html", "model/manifest.json", "metrics.json"):
        assert sha256(outputs / name) == sha256(tried.results / name), name


def test_halton_trials_are_the_same_bytes_after_kills_at_random_moments(tried: Project, tmp_path: Path) -> None:
    calm = Project(tmp_path / "calm")
    # Tiles, labels and split are there; the trials are others.
    shutil.copytree(tried.folder, calm.folder, symlinks=True)
    configure(calm, **HALTON)
    result = calm.run("--show-failed-logs", "--", "results/trials.json")
    assert result.returncode == 0, result.stdout
    project, moments = write(tmp_path / "project", **HALTON), random.Random(7)
    for _ in range(6):
        process = subprocess.Popen(
            project.command("--keep-going"),
            cwd=project.folder,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            process.wait(timeout=moments.uniform(2, 20))
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait(timeout=60)
        time.sleep(0.5)
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    for name in ("trials.json", "trials.html", "model/manifest.json"):
        assert sha256(project.results / name) == sha256(calm.results / name), name
    rows = read_json(project.results / "trials.json")["trials"]
    assert len({row["settings"]["learning_rate"] for row in rows}) == HALTON["count"]
