"""`eopipe run` on hosts that share a folder: which run may start, and what the others report."""

import platform
from pathlib import Path

import pytest

from eopipe.errors import UsageError
from eopipe.run.project import LOCK, run


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


def test_a_killed_run_of_this_host_is_stale_and_a_run_that_ends_says_so(folder: Path) -> None:
    LOCK.write_text(f"process 7 on {platform.node()} since 2026-01-01T00:00:00+00:00")
    assert run(["--quiet", "all"]) == 0
    assert (folder / "made").exists()
    assert LOCK.read_text() == ""
