"""`eopipe run` on hosts that share a folder: which run may start, and what the others report."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from eopipe.clusters.profile import mount_of, mounts
from eopipe.errors import UsageError
from eopipe.publish import host_id
from eopipe.run import project
from eopipe.run.project import LOCK, claim_results, run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Snakefile").write_text("rule all:\n    output: 'made'\n    shell: 'touch {output}'\n")
    (tmp_path / LOCK).parent.mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_on_another_host_that_has_not_ended_is_not_taken_for_dead(folder: Path) -> None:
    # As on a file system whose locks hold within one host only.
    LOCK.write_text("process 7 on login2 since 2026-01-01T00:00:00+00:00")
    with pytest.raises(UsageError, match=r"a run started here as process 7 on login2 since .*; look for it on login2"):
        run(["--quiet", "all"])
    assert not (folder / "made").exists()


@pytest.mark.exhaustive
def test_a_killed_run_under_another_host_name_needs_no_hand_step_where_locks_are_global(folder: Path) -> None:
    LOCK.write_text("process 7 on 3f2a1b since 2026-01-01T00:00:00+00:00")
    assert run(["--quiet", "all"], locks_are_global=True) == 0
    assert (folder / "made").exists()


@pytest.mark.parametrize(
    ("line", "are_global"),
    [
        ("overlay / overlay rw,relatime 0 0", True),
        ("/dev/vda / ext4 rw 0 0", True),
        ("server:/home / nfs4 rw,vers=4.2,local_lock=none 0 0", True),
        ("server:/home / nfs rw,vers=3,local_lock=all 0 0", False),
        ("server:/home / nfs rw,vers=3,nolock,local_lock=none 0 0", False),
        ("mds@tcp:/scratch / lustre rw,flock,lazystatfs 0 0", True),
        ("mds@tcp:/scratch / lustre rw,localflock,lazystatfs 0 0", False),
        ("beegfs / beegfs rw 0 0", False),
        ("share / virtiofs rw 0 0", False),
    ],
)
def test_the_mount_says_whether_locks_hold_on_all_hosts(line: str, are_global: bool) -> None:
    mount = mount_of(Path("/"), mounts(line))
    assert mount is not None
    assert mount.locks_are_global == are_global


@pytest.mark.exhaustive
def test_a_killed_run_of_this_host_is_stale_and_a_run_that_ends_says_so(folder: Path) -> None:
    LOCK.write_text(f"process 7 on {platform.node()} since 2026-01-01T00:00:00+00:00")
    assert run(["--quiet", "all"]) == 0
    assert (folder / "made").exists()
    assert LOCK.read_text() == ""


def test_results_of_another_config_are_kept_until_it_is_gone(folder: Path) -> None:
    Path("a.yaml").touch()
    Path("b.yaml").touch()
    claim_results(Path("results"), "a.yaml")
    claim_results(Path("results"), "a.yaml")
    with pytest.raises(UsageError, match=r"results has the results of a\.yaml, .* add `results: results-b` and"):
        claim_results(Path("results"), "b.yaml")
    claim_results(Path("results-b"), "b.yaml")
    # As after a config was renamed.
    Path("a.yaml").unlink()
    claim_results(Path("results"), "b.yaml")
    assert Path("results/logs/config.txt").read_text() == "b.yaml\n"


def test_a_run_does_not_warn_of_a_missing_condor_and_keeps_the_filters_of_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the plugin of HTCondor does, which Snakemake loads in every run."""
    warned = "The environment variable CONDOR_CONFIG is unset and none of the default locations contain a file."
    code = f"import warnings; warnings.warn({warned!r}); warnings.warn('other'); warnings.warn('mine', FutureWarning)"
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::FutureWarning")
    done = subprocess.run(
        [sys.executable, "-c", code], env=project._environment(folder), capture_output=True, text=True, check=True
    )
    assert "CONDOR" not in done.stderr
    assert "other" in done.stderr
    assert "mine" not in done.stderr


def test_a_run_removes_the_drafts_of_killed_jobs_that_are_not_run_again(folder: Path) -> None:
    ended, alive = 2**22 - 1, os.getpid()
    for place in ("results/tiles", "results/maps/mosaic"):
        Path(place).mkdir(parents=True)
        for process in (ended, alive):
            Path(place, f".a.zarr.run.json.tmp-{host_id()}-{process}-0123abcd").mkdir()
        Path(place, "a.zarr.run.json").touch()
    claim_results(Path("results"), "config.yaml")
    for place in ("results/tiles", "results/maps/mosaic"):
        assert sorted(path.name for path in Path(place).iterdir()) == [
            f".a.zarr.run.json.tmp-{host_id()}-{alive}-0123abcd",
            "a.zarr.run.json",
        ]
