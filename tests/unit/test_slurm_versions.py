"""`eopipe profile slurm` with the answers of other versions of Slurm (tests/cluster/answers)."""

import os
from pathlib import Path

import pytest
import yaml
from projects import ROOT

from eopipe.cli import main
from eopipe.clusters.slurm import query_site

ANSWERS = ROOT / "tests/cluster/answers"
VERSIONS = sorted(folder.name for folder in ANSWERS.iterdir() if folder.is_dir())
SCONTROL = """#!/bin/sh
case "$*" in
"show config") cat {folder}/config ;;
"--oneliner show "*) cat {answers}/"$3" ;;
"show hostnames node[1-4]") printf 'node1\\nnode2\\nnode3\\nnode4\\n' ;;
*) echo "invalid entity: $*" >&2; exit 1 ;;
esac
"""
# As each recorded version answers without accounting, and with it.
SACCTMGR = {
    False: "#!/bin/sh\necho 'You are not running a supported accounting_storage plugin' >&2\n"
    "echo \"Only 'accounting_storage/slurmdbd' is supported.\" >&2\nexit 1\n",
    True: "#!/bin/sh\nprintf 'eo\\nroot\\n'\n",
}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[False, True], ids=["without accounting", "with accounting"])
def accounting(request: pytest.FixtureRequest, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The commands of a login node of this version in the path."""
    has_accounting: bool = request.param
    config = (ANSWERS / version / "config").read_text()
    if has_accounting:
        lines = [line for line in config.splitlines(keepends=True) if not line.startswith("AccountingStorageType ")]
        config = "".join([*lines, "AccountingStorageType   = accounting_storage/slurmdbd\n"])
    (tmp_path / "config").write_text(config)
    programs = {"scontrol": SCONTROL.format(folder=tmp_path, answers=ANSWERS / version)}
    programs["sacctmgr"] = SACCTMGR[has_accounting]
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return has_accounting


def test_a_profile_is_written_for_each_version_with_and_without_accounting(
    version: str, accounting: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "slurm", "--show", "--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2"]) == 0
    text = capsys.readouterr().out
    assert f"cluster eopipe (Slurm {version})" in text
    profile = yaml.safe_load(text)
    common = {"slurm_partition": "debug"}
    assert profile["default-resources"] == (common | {"slurm_account": "eo"} if accounting else common)
    train = profile["set-resources"]["train"]
    assert (train["slurm_partition"], train["gres"], train["nodes"], train["runtime"]) == ("gpu", "gpu:2", 2, 60)


def test_each_version_has_the_same_nodes_partitions_and_limits(version: str, accounting: bool) -> None:
    site = query_site()
    assert (site.version, site.has_accounting, site.accounts) == (version, accounting, ("eo",) if accounting else ())
    assert (site.requeues, site.min_job_age_s, site.enforces_limits, site.gres) == (True, 600, True, ("gpu",))
    assert [partition.name for partition in site.partitions] == ["debug", "gpu", "low"]
    assert site.partition("low").preempt_mode == "REQUEUE"
    gpu = site.partition("gpu")
    assert (gpu.cpus, gpu.memory_mb, gpu.gpus, gpu.is_up) == (8, 8000, 2, True)
    assert (gpu.max_minutes, gpu.max_nodes) == (60, None)
    assert [node.is_up for node in gpu.nodes] == [True] * 4
