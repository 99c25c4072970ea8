"""One small run of the whole pipeline, shared by the tests that look at it."""

from pathlib import Path

import pytest
from projects import ROOT, Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make(tmp_path)


def make(folder: Path) -> Project:
    (folder / "sample").symlink_to(ROOT / "sample")
    made = Project(folder)
    made.write()
    return made


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = make(tmp_path_factory.mktemp("finished"))
    done = made.run()
    assert done.returncode == 0, done.stdout
    return made
