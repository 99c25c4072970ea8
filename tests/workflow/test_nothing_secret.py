"""A whole run with secrets in its environment, its catalog, its paths and its errors: none is in what it leaves."""

import os
import socket
from pathlib import Path

import pytest
from planted import KEY, PASSWORD, SIGNATURE, TOKEN, USER, plant
from projects import ROOT, Project

from eopipe.provenance.redact import GENERIC_NAMES


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return plant(tmp_path, monkeypatch)


def telling(project: Project) -> dict[str, list[str]]:
    """What is left that tells a secret, with which."""
    words = [KEY, TOKEN, SIGNATURE, PASSWORD, USER, str(project.folder), str(ROOT)]
    host = socket.gethostname()
    words += [host] if len(host) > 3 and host not in GENERIC_NAMES else []
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


def test_nothing_that_a_run_leaves_tells_a_secret(composed: Project) -> None:
    assert (composed.results / "crate/ro-crate-metadata.json").is_file()
    assert telling(composed) == {}


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
