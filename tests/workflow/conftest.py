"""Small runs of the whole pipeline, shared by the tests that read them."""

from pathlib import Path

import pytest
from planted import plant
from projects import ROOT, Project, by_cwltool


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
    project = make(tmp_path_factory.mktemp("finished"))
    result = project.run()
    assert result.returncode == 0, result.stdout
    return project


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
    return by_cwltool(finished, tmp_path_factory.mktemp("cwl"))
