"""A whole run with credentials in its environment, catalog, paths and errors: no file that it leaves has one."""

import os
import platform
from pathlib import Path

import pytest
from planted import KEY, PASSWORD, SIGNATURE, TOKEN, USER, plant
from projects import ROOT, Project

from eopipe.provenance.redact import GENERIC_NAMES


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return plant(tmp_path, monkeypatch)


def leaks(project: Project) -> dict[str, list[str]]:
    """The files that contain a secret, each with the secrets."""
    secrets = [KEY, TOKEN, SIGNATURE, PASSWORD, USER, str(project.folder)]
    host = platform.node()
    secrets += [host] if len(host) > 3 and host not in GENERIC_NAMES else []
    # A run record may have the relative path to the checkout, and a job's log, which stays here, its command.
    absolute, relative = str(ROOT), os.path.relpath(ROOT, project.folder)
    leaking = {}
    for path in sorted(project.folder.rglob("*")):
        # The catalog is an input.
        if path.is_file() and path.relative_to(project.folder).parts[0] != "sample":
            text = path.read_bytes().decode(errors="replace")
            of_checkout = [absolute] if path.name.endswith(".run.json") else [absolute, relative]
            secrets_of_file = secrets + ([] if project.results / "logs" in path.parents else of_checkout)
            if contained := [secret for secret in secrets_of_file if secret in text]:
                leaking[str(path.relative_to(project.folder))] = contained
    return leaking


# In the slice of tests/workflow/test_composite_run.py, whose run it reads.
@pytest.mark.exhaustive(by="composed run")
def test_nothing_that_a_run_leaves_contains_a_secret(composed: Project) -> None:
    assert (composed.results / "crate/ro-crate-metadata.json").is_file()
    assert leaks(composed) == {}


def test_nothing_that_a_failure_leaves_contains_a_secret(project: Project) -> None:
    project.write(label={"source": str(project.folder / "labels.tif")})
    (project.folder / "labels.tif").write_text(f"not a raster, but {TOKEN}")
    result = project.run("--", "results/labels/all.zarr/manifest.json")
    assert result.returncode == 1
    (project.folder / "labels.tif").unlink()
    # An absolute path in a config stays there, and where Snakemake records its files.
    leaking = {path: secrets for path, secrets in leaks(project).items() if path != "config.yaml"}
    assert not {path: secrets for path, secrets in leaking.items() if not path.startswith(".snakemake/")}
    assert not {p: secrets for p, secrets in leaking.items() if {KEY, TOKEN, SIGNATURE, PASSWORD} & set(secrets)}
