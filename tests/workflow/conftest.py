"""One small run of the whole pipeline, shared by the tests that look at it."""

from pathlib import Path

import pytest
import yaml
from planted import plant
from projects import DAYS, ROOT, Project, cwltool


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


@pytest.fixture(scope="session")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A run on seasonal medians, with secrets wherever there may be some."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = plant(tmp_path_factory.mktemp("composed"), monkeypatch)
        made.write(composite={"method": "median", "period": "season"}, train={"epochs": 1, "batch": 8, "width": 8})
        done = made.run("--show-failed-logs")
    assert done.returncode == 0, done.stdout
    return made


@pytest.fixture(scope="session")
def by_cwl(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline of the finished project, under cwltool."""
    folder = tmp_path_factory.mktemp("cwl")
    job = yaml.safe_load((ROOT / "cwl/pipeline.yml").read_text())
    sample = {"class": "Directory", "path": str(ROOT / "sample")}
    source = {"class": "File", "path": str(ROOT / "sample/tree_cover_density_2018.tif")}
    job["lock"]["path"] = str(ROOT / "constraints.txt")
    job |= {"catalog": sample, "source": source, "epochs": 12, "batch": 8, "width": 8}
    job["ids"] = [f"S2_ROMANIA_{day}" for day in DAYS]
    (folder / "job.yml").write_text(yaml.safe_dump(job))
    cwltool("--outdir", folder / "out", ROOT / "cwl/pipeline.cwl", "job.yml", cwd=folder)
    return folder / "out"
