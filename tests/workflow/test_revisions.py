"""A change of eopipe or of the config reruns what it changes and nothing else."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import DAYS, ROOT, Project, environment

from eopipe.config import load
from eopipe.contract import STAGES, stage
from eopipe.run.rules import params_for

FOLLOWS = {"split", "train", "calibrate", "predict", "evaluate", "export", "report", "catalog", "crate", "all"}


class OtherVersion:
    """Another version of eopipe, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("eopipe", "workflow", "config"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Snakefile", folder)

    def change(self, path: str, old: str, new: str) -> None:
        file = self.folder / "eopipe" / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    def plan(self, project: Project) -> str:
        """The dry run of a project with this version, with its reasons."""
        result = subprocess.run(
            project.command("--dry-run"),
            cwd=project.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            env=environment() | {"PYTHONPATH": str(self.folder)},
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr


def rules(plan: str) -> list[str]:
    return re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", plan, re.MULTILINE)


@pytest.fixture
def other(tmp_path: Path) -> OtherVersion:
    return OtherVersion(tmp_path / "other")


@pytest.mark.exhaustive
def test_another_version_with_the_same_results_reruns_nothing(finished: Project, other: OtherVersion) -> None:
    other.change("__init__.py", '__version__ = "', '__version__ = "9.')
    # The crate contains the workflow, and that of the other version is in another folder.
    assert set(rules(other.plan(finished))) <= {"crate", "all"}


def test_a_stage_with_a_new_revision_runs_again_with_all_that_follows(finished: Project, other: OtherVersion) -> None:
    other.change("stages/preprocess.py", "\n\ndef preprocess(", "\nREVISION = 1000\n\n\ndef preprocess(")
    plan = other.plan(finished)
    planned = rules(plan)
    assert planned.count("preprocess") == len(DAYS)
    assert set(planned) == {"preprocess"} | FOLLOWS
    assert "Params have changed since last execution" in plan
    assert "1000" in plan, "the reason contains the number"


@pytest.mark.exhaustive
def test_a_change_of_preprocessing_keeps_the_downloads(finished: Project) -> None:
    finished.write(preprocess={"saturated": 9000.0})
    try:
        planned = finished.planned()
    finally:
        finished.write()
    assert planned.count("preprocess") == len(DAYS)
    assert set(planned) == {"preprocess"} | FOLLOWS


def test_every_rule_has_its_revision() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    assert set(re.findall(r'^        \*\*params_for\("(\w+)"', text, re.MULTILINE)) == set(STAGES)
    config = load(ROOT / "config/config.yaml")
    assert all(params_for(config, name)["revision"] == stage(name).revision >= 1 for name in STAGES)
