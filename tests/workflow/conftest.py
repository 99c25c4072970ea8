"""Small runs of the whole pipeline, shared by the tests that read them."""

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from planted import plant
from projects import DAYS, ROOT, Project, by_cwltool, made_once


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(tmp_path)


def make(folder: Path) -> Project:
    (folder / "sample").symlink_to(ROOT / "sample")
    project = Project(folder)
    project.write()
    return project


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run to the end; a copy of its own for each process of the tests, which may go on with it."""
    folder = tmp_path_factory.mktemp("own") / "finished"
    shutil.copytree(made_once(tmp_path_factory.mktemp("finished", numbered=False), run_to_end), folder, symlinks=True)
    return Project(folder)


def run_to_end(folder: Path) -> None:
    result = make(folder).run()
    assert result.returncode == 0, result.stdout


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run of the demo's config with six scenes and a small model; a copy of its own for each process."""

    def run(folder: Path) -> None:
        project = make(folder)
        project.write(composite=yaml.safe_load((ROOT / "config/config.yaml").read_text())["composite"])
        result = project.run()
        assert result.returncode == 0, result.stdout

    folder = tmp_path_factory.mktemp("own_demo") / "demo"
    # With its hard links.
    subprocess.run(
        ["cp", "--archive", made_once(tmp_path_factory.mktemp("demo", numbered=False), run), folder], check=True
    )
    return Project(folder)


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run on seasonal medians, with secrets in environment, paths and catalog."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        project = plant(tmp_path_factory.mktemp("composed"), monkeypatch)
        project.write(composite={"method": "median", "period": "season"}, train={"epochs": 1, "batch": 8, "width": 8})
        result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    return project


@pytest.fixture(scope="session")
def by_cwl(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline of the finished project, under cwltool."""
    folder = tmp_path_factory.mktemp("by_cwl", numbered=False)
    return made_once(folder, lambda folder: by_cwltool(finished, folder)) / "out"


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """A finished run of an example config on six scenes, by its name."""

    @cache
    def run(name: str) -> Project:
        folder = tmp_path_factory.mktemp(name)
        (folder / "sample").symlink_to(ROOT / "sample")
        config = yaml.safe_load((ROOT / f"config/examples/{name}.yaml").read_text())
        config["search"] |= {"ids": [f"S2_ROMANIA_{day}" for day in DAYS]}
        config["train"] |= {"epochs": 6, "batch": 16, "width": 8, "processes": 1}
        config |= {"results": "results", "state": "state"}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        project = Project(folder)
        result = project.run("--show-failed-logs")
        assert result.returncode == 0, result.stdout
        return project

    return run
