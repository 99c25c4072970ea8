"""What a run record tells of the code, the project and the engine."""

import subprocess
import sys
from pathlib import Path

import pytest
from scenery import Catalog, Run

from eopipe.provenance.record import CODE, commit
from eopipe.publish import read_json

ASKING = "from eopipe.provenance.record import engine; print(engine())"


def git(folder: Path, *words: str) -> str:
    known = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(["git", *known, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_record_tells_the_commits_of_the_code_and_of_the_project(
    run: Run, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "deep").mkdir(parents=True)
    (project / "config.yaml").write_text("results: results\n")
    git(project, "init", "--quiet")
    git(project, "add", "config.yaml")
    git(project, "commit", "--quiet", "--message", "Begin")
    monkeypatch.chdir(project / "deep")
    catalog.add("A")
    place = catalog.write()

    def told(number: int) -> dict[str, str]:
        made = [word for port in ("items", "grid", "selection") for word in (f"--{port}", f"{number}/{port}")]
        assert run("search", "--catalog", place, "--assets", "red", *made).code == 0
        record = read_json(Path(f"{number}/items.run.json"))
        return {"project": record["project"], "code": record["software"]["git"]}

    head = git(project, "rev-parse", "HEAD")
    assert told(1) == {"project": head, "code": commit(CODE)}
    (project / "config.yaml").write_text("results: others\n")
    assert told(2)["project"] == f"{head}+"
    monkeypatch.chdir(CODE / "docs")
    assert commit(Path.cwd()) == "", "only the top of a checkout is one"


@pytest.mark.parametrize("above", [[], ["sh", "-c", '"$@"; true', "sh"]])
def test_a_record_tells_the_engine_above_the_job(above: list[str], tmp_path: Path) -> None:
    about = tmp_path / "lib/python3.11/site-packages/cwltool-9.9.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: cwltool\nVersion: 9.9\n")
    engine = tmp_path / "bin/cwltool"
    engine.parent.mkdir()
    engine.write_text(f"#!{sys.executable}\nimport subprocess, sys\nsubprocess.run(sys.argv[1:], check=True)\n")
    engine.chmod(0o755)
    words = [*above, sys.executable, "-c", ASKING]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "\n"
    assert subprocess.run([engine, *words], capture_output=True, text=True, check=True).stdout == "cwltool 9.9\n"
