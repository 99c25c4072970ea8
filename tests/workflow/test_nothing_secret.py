"""A whole run with secrets in its environment, its catalog, its paths and its errors: none is in what it leaves."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from projects import ROOT, Project

from eopipe.provenance.secrets import ANYBODY

KEY, TOKEN, SIGNATURE, PASSWORD, USER = "AKIA-5ecret-key", "t0ken-of-host", "s1gnature", "pa55word", "grace-hopper"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in the home of somebody, with a catalog whose items are signed all over."""
    home = tmp_path / "home" / USER
    made = Project(home / "project")
    made.folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("EOPIPE_TOKEN_EXAMPLE_ORG", TOKEN)
    shutil.copytree(ROOT / "sample", made.folder / "sample")
    signed = f"https://{USER}:{PASSWORD}@example.org/item.json?se=2030-01-01&sig={SIGNATURE}"
    for path in made.folder.glob("sample/*/*/*.json"):
        item = json.loads(path.read_text())
        item["links"].append({"rel": "via", "href": signed})
        item["properties"]["note"] = signed
        for asset in item["assets"].values():
            asset["alternate"] = {"mirror": {"href": signed}}
        path.write_text(json.dumps(item))
    return made


def telling(project: Project) -> dict[str, list[str]]:
    """What is left that tells a secret, with which."""
    words = [KEY, TOKEN, SIGNATURE, PASSWORD, USER, str(project.folder), str(ROOT)]
    host = socket.gethostname()
    words += [host] if len(host) > 3 and host not in ANYBODY else []
    # Up to where the two part the way to the checkout tells little, but only a record knows where that is.
    words += [os.path.relpath(ROOT, project.folder)]
    found = {}
    for path in sorted(project.folder.rglob("*")):
        # The catalog is no result.
        if path.is_file() and path.relative_to(project.folder).parts[0] != "sample":
            text = path.read_bytes().decode(errors="replace")
            known = words[:-1] if path.name.endswith(".run.json") else words
            if told := [word for word in known if word in text]:
                found[str(path.relative_to(project.folder))] = told
    return found


def test_nothing_that_a_run_leaves_tells_a_secret(project: Project) -> None:
    project.write(train={"epochs": 2})
    done = project.run()
    assert done.returncode == 0, done.stdout
    assert (project.results / "crate/ro-crate-metadata.json").is_file()
    assert telling(project) == {}


def test_nothing_that_a_failure_leaves_tells_a_secret(project: Project) -> None:
    project.write(label={"source": str(project.folder / "labels.tif")})
    (project.folder / "labels.tif").write_text(f"no raster, but {TOKEN}")
    done = project.run("--", "results/labels/all.zarr/manifest.json")
    assert done.returncode == 1
    (project.folder / "labels.tif").unlink()
    # Whoever writes an absolute path into a config has it there, and where Snakemake remembers its files.
    left = {path: words for path, words in telling(project).items() if path != "config.yaml"}
    assert not {path: words for path, words in left.items() if not path.startswith(".snakemake/")}
    assert not {path: words for path, words in left.items() if {KEY, TOKEN, SIGNATURE, PASSWORD} & set(words)}
