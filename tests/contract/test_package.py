"""The wheel and the source archive contain what a user needs, and nothing else."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from projects import ROOT

from dev import cwl_variants


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel and an sdist, built from the committed files."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "source"], check=True)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "source")]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def test_the_wheel_holds_the_package_the_workflow_and_the_template(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    assert {"eopipe/cli.py", "eopipe/py.typed", "eopipe/reporting/page.html"} <= names
    assert "snakemake_report_plugin_eopipe/__init__.py" in names, "Snakemake finds it by this name"
    share = {name.partition(".data/data/")[2] for name in names if ".data/data/" in name}
    assert {"share/eopipe/Snakefile", "share/eopipe/workflow/rules/model.smk"} <= share
    assert not [name for name in names if name.startswith(("tests", "sample", "dev"))]
    committed = subprocess.run(["git", "ls-files", "sample"], cwd=ROOT, capture_output=True, text=True, check=True)
    sample = {f"share/eopipe/{name}" for name in committed.stdout.split()} - {"share/eopipe/sample/build.py"}
    assert {name for name in share if name.startswith("share/eopipe/sample/")} == sample
    examples = {f"share/eopipe/config/examples/{path.name}" for path in (ROOT / "config/examples").glob("*.yaml")}
    assert examples | {"share/eopipe/config/config.yaml"} <= share
    # What `eopipe cwl` copies.
    tools = [*(ROOT / "cwl").rglob("*.cwl"), *(ROOT / "cwl/overrides").iterdir()]
    assert {f"share/eopipe/{path.relative_to(ROOT)}" for path in tools} <= share


def test_cwl_that_follows_from_committed_files_is_in_the_wheel_and_not_in_the_tree(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    texts = cwl_variants.built(cwl_variants.committed())
    with zipfile.ZipFile(wheel) as file:
        folder = next(name for name in file.namelist() if name.endswith("/share/eopipe/cwl/pipeline.cwl"))
        for name, text in texts.items():
            assert file.read(folder.replace("pipeline.cwl", name)).decode() == text, name
    listed = subprocess.run(["git", "ls-files", "cwl"], cwd=ROOT, capture_output=True, text=True, check=True)
    committed = [name for name in listed.stdout.split() if (ROOT / name).is_file()]
    assert not {f"cwl/{name}" for name in texts} & {*committed}
    assert sum(len((ROOT / name).read_text().splitlines()) for name in committed) < 12_000
    # What a committed document names is committed, or a step of it.
    text = (ROOT / "cwl/pipeline.cwl").read_text()
    named = {match[1] for match in re.finditer(r"(?:run|location): ([\w/-]+\.\w+)", text)}
    assert named <= {name.removeprefix("cwl/") for name in committed}


def test_the_source_archive_can_build_the_wheel_again(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "Snakefile", "LICENSE", "workflow/rules/common.smk", "eopipe/cli.py"} <= names


def test_make_has_what_it_needs_in_the_unpacked_source_archive(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={tmp_path}"], check=True)
    (source,) = tmp_path.iterdir()
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    for command in (["make", "--dry-run", "demo", "sync", "check"], [sys.executable, "-m", "dev.sync", "--check"]):
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (source / "sample/catalog.json").is_file()


def test_an_installed_wheel_runs_without_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    # Its dependencies are those of this environment; only eopipe is installed.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--prefix", str(tmp_path / "prefix")]
    subprocess.run([*pip, "--ignore-installed", str(wheel)], check=True, capture_output=True)
    site = next((tmp_path / "prefix").glob("lib/python*/site-packages"))
    code = (
        "import sys; sys.prefix = sys.argv[1]; from eopipe.run.project import snakefile; print(snakefile()); "
        "from eopipe.provenance.record import commit; print(commit())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "prefix")]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True
    )
    # The wheel is built from the archive, which is no checkout.
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert done.stdout.splitlines() == [str(tmp_path / "prefix/share/eopipe/Snakefile"), head.strip()]
