"""A run record names the commits of the code and of the project, and the engine."""

import subprocess
import sys
from pathlib import Path

import pytest
from scenery import Catalog, Run

from eopipe.provenance.record import CODE, commit
from eopipe.text_files import read_json

PRINT_ENGINE = "from eopipe.provenance.record import engine; print(engine())"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    result = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_a_record_names_the_commits_of_the_code_and_of_the_project(
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
    folder = catalog.write()

    def recorded_commits(number: int) -> dict[str, str]:
        outputs = [word for port in ("items", "grid", "selection") for word in (f"--{port}", f"{number}/{port}")]
        assert run("search", "--catalog", folder, "--assets", "red", *outputs).code == 0
        record = read_json(Path(f"{number}/items.run.json"))
        return {"project": record["project"], "code": record["software"]["git"]}

    head = git(project, "rev-parse", "HEAD")
    assert recorded_commits(1) == {"project": head, "code": commit(CODE)}
    (project / "config.yaml").write_text("results: others\n")
    assert recorded_commits(2)["project"] == f"{head}+"
    monkeypatch.chdir(CODE / "docs")
    assert commit(Path.cwd()) == "", "only the top folder of a checkout counts"


@pytest.mark.parametrize("parents", [[], ["sh", "-c", '"$@"; true', "sh"]])
def test_a_record_names_the_engine_above_the_job(parents: list[str], tmp_path: Path) -> None:
    metadata = tmp_path / "lib/python3.11/site-packages/cwltool-9.9.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: cwltool\nVersion: 9.9\n")
    engine = tmp_path / "bin/cwltool"
    engine.parent.mkdir()
    engine.write_text(f"#!{sys.executable}\nimport subprocess, sys\nsubprocess.run(sys.argv[1:], check=True)\n")
    engine.chmod(0o755)
    command = [*parents, sys.executable, "-c", PRINT_ENGINE]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
    assert subprocess.run([engine, *command], capture_output=True, text=True, check=True).stdout == "cwltool 9.9\n"
    # As `eopipe run` starts Snakemake: a module behind options of the interpreter, which is that of an environment.
    module = tmp_path / "cwltool.py"
    module.write_text(engine.read_text())
    python = tmp_path / "bin/python"
    python.symlink_to(sys.executable)
    line = [python, "-B", "-m", "cwltool", *command]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "cwltool 9.9\n"
