"""The crates of whole runs, from either engine, before the validator of the RO-Crate community."""

from pathlib import Path

from offline_rocrate import issues, seed
from projects import Project


def test_the_crate_of_a_snakemake_run_is_a_provenance_run_crate(finished: Project, tmp_path: Path) -> None:
    cache = seed(tmp_path / "cache")
    assert issues(finished.results / "crate", cache, "REQUIRED") == []
    assert issues(finished.results / "crate", cache, "RECOMMENDED") == []


def test_the_crate_of_a_cwl_run_is_a_provenance_run_crate(by_cwl: Path, tmp_path: Path) -> None:
    cache = seed(tmp_path / "cache")
    assert issues(by_cwl / "crate", cache, "REQUIRED") == []
