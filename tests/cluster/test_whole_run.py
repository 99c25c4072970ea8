"""The whole pipeline as jobs of a real Slurm: from an empty folder to the crate."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_project import ClusterProject
from daemons import sh, wait
from projects import DAYS, ROOT, Project, by_cwltool, environment

from eopipe.publish import sha256
from eopipe.run.project import SNAKEFILE
from eopipe.text_files import read_json
from slurm import Cluster

pytestmark = [pytest.mark.alone, pytest.mark.exhaustive, pytest.mark.same_bytes]
# Stages that run where Snakemake runs.
LOCAL = {"search", "fetch"}
# Two points, of which one continues behind half of the steps.
TRIALS = {
    "space": {"width": [4, 8], "learning_rate": {"low": 0.001, "high": 0.03, "log": True}},
    "sampler": "halton",
    "count": 2,
    "rungs": [0.5],
}


MEMBERS = [{"architecture": "unet"}, {"architecture": "forest"}, {"architecture": "linear"}]


def new_project(folder: Path, **several: Any) -> Project:
    """A folder as `eopipe init` writes it, for two scenes and several short trainings."""
    folder.mkdir()
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "sample").symlink_to(ROOT / "sample")
    project = Project(folder)
    project.write(
        search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:2]]},
        train={"epochs": 3},
    )
    with (folder / "config.yaml").open("a") as config:
        yaml.safe_dump(several, config)
    return project


def run_twice(folder: Path, **several: Any) -> tuple[Project, ClusterProject]:
    """The same project run on this computer and, at the same time, through Slurm."""
    laptop, clustered = (
        new_project(folder / "laptop", **several),
        ClusterProject(new_project(folder / "slurm", **several)),
    )
    with (folder / "laptop.log").open("w") as log:
        alone = subprocess.Popen(laptop.command(), cwd=laptop.folder, stdout=log, stderr=log, env=environment())
    clustered.profile()
    try:
        assert clustered.end(clustered.start(), 600) == 0, clustered.snakemake_log
        assert alone.wait(600) == 0, (folder / "laptop.log").read_text()
    finally:
        alone.kill()
        clustered.kill_all()
    return laptop, clustered


def jobs_of_stages(results: Path) -> dict[str, str]:
    """The scheduler's job of each stage, from its run record; empty where it ran outside of one."""
    records = [json.loads(file.read_text()) for file in results.rglob("*.run.json") if "crate" not in file.parts]
    return {record["stage"]: record["place"].get("job") or "" for record in records}


def test_a_run_through_slurm_from_an_empty_folder_to_the_crate_has_the_bytes_of_a_laptop(
    cluster: Cluster, tmp_path: Path
) -> None:
    laptop, clustered = run_twice(tmp_path, trials=TRIALS)
    assert (clustered.folder / "results/crate/manifest.json").exists()
    digests = laptop.digests()
    assert clustered.project.digests() == digests
    assert {"model", "metrics.json", "report.html", "trials.json"} <= {name.partition("/")[0] for name in digests}
    rows = read_json(clustered.project.results / "trials.json")["trials"]
    assert [row["stopped"] for row in rows] == [False, True]
    jobs = jobs_of_stages(clustered.project.results)
    assert {stage for stage, job in jobs.items() if not job} == LOCAL
    assert {
        "preprocess",
        "label",
        "split",
        "train",
        "choose",
        "evaluate",
        "predict",
        "report",
        "catalog",
    } <= set(jobs)
    assert all(re.fullmatch(r"slurm:\d+", job) for stage, job in jobs.items() if stage not in LOCAL)
    # What Slurm ran is known on a laptop, too: nothing is left, and a change is seen.
    assert clustered.project.planned() == []
    config = clustered.folder / "config.yaml"
    config.write_text(config.read_text().replace("bins:\n  - 50", "bins:\n  - 40"))
    assert clustered.project.planned("--until", "label") == ["label"]
    config.write_text(config.read_text().replace("bins:\n  - 40", "bins:\n  - 50"))
    # The finished model maps the same scenes again, without a training.
    done = subprocess.run(
        [sys.executable, "-m", "eopipe", "init", "again", "--from", str(clustered.folder)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    again = ClusterProject(Project(tmp_path / "again"))
    again.profile()
    try:
        assert again.end(again.start(), 600) == 0, again.snakemake_log
    finally:
        again.kill_all()
    jobs = jobs_of_stages(again.project.results)
    assert {stage for stage, job in jobs.items() if job} == {"preprocess", "predict", "report", "catalog", "crate"}
    of_map = again.project.digests()
    assert of_map["maps/mosaic/probabilities.tif"] == digests["maps/mosaic/probabilities.tif"]


def test_members_of_several_kinds_have_one_digest_on_a_laptop_slurm_and_cwltool(
    cluster: Cluster, tmp_path: Path
) -> None:
    laptop, clustered = run_twice(tmp_path, members=MEMBERS)
    digests = laptop.digests()
    assert clustered.project.digests() == digests
    (tmp_path / "cwl").mkdir()
    outputs = by_cwltool(laptop, tmp_path / "cwl")
    for name in ("model/manifest.json", "metrics.json"):
        assert sha256(outputs / name) == digests[name], name
    assert sha256(outputs / "classes.tif") == digests["maps/mosaic/classes.tif"]
    kinds = read_json(outputs / "model/model.json")["properties"]["eopipe:kinds"]
    assert [kind["architecture"] for kind in kinds] == ["unet", "forest", "linear"]


def test_the_batch_script_of_the_docs_requeues_a_training_that_has_saved_and_stopped(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = (ROOT / "docs/clusters.md").read_text()
    [script] = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)
    # What a training does that was stopped and has saved, and after that one that ends.
    training = "if [ -e saved ]; then echo resumed; true; else touch saved; (exit 75); fi"
    script, count = re.subn(r"^eopipe train .*$", training, script, flags=re.MULTILINE)
    assert count == 1
    (tmp_path / "train.sh").write_text(script)
    job = sh("sbatch", "--parsable", f"--chdir={tmp_path}", "--output=log", "--time=2", tmp_path / "train.sh").strip()
    wait(60, lambda: "JobState=PENDING Reason=BeginTime" in sh("scontrol", "show", "job", job), "the job is requeued")
    # Slurm lets it wait for two minutes; in the second of its requeue the nodes would refuse it as revoked.
    sh("scontrol", "update", f"jobid={job}", "StartTime=now+5")
    wait(240, lambda: has_ended(job), f"job {job} has ended")
    status = sh("scontrol", "show", "job", job)
    assert "JobState=COMPLETED" in status
    assert "Restarts=1" in status
    assert "resumed\n" in (tmp_path / "log").read_text()


def has_ended(job: str) -> bool:
    """Whether a job is neither waiting nor running."""
    return not re.search(r"JobState=(PENDING|RUNNING|COMPLETING)", sh("scontrol", "show", "job", job))
