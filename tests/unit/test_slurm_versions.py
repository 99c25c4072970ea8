"""`eopipe profile slurm` with the answers of other versions of Slurm (tests/cluster/answers)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ROOT

from eopipe.cli import main
from eopipe.clusters import slurm
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
    assert (site.min_job_age_s, site.enforces_limits, site.gres) == (600, True, ("gpu",))
    assert [partition.name for partition in site.partitions] == ["debug", "gpu", "low"]
    assert site.partition("low").preempt_mode == "REQUEUE"
    gpu = site.partition("gpu")
    assert (gpu.cpus, gpu.memory_mb, gpu.gpus, gpu.is_up) == (8, 8000, 2, True)
    assert (gpu.max_minutes, gpu.max_nodes) == (60, None)
    assert len(gpu.nodes) == 4


@pytest.mark.parametrize(
    "script",
    [
        # Slurm 22.05 without a slurm.conf, and with the path of one that is not there.
        "echo 'scontrol: error: fetch_config: DNS SRV lookup failed' >&2\n"
        "echo 'scontrol: fatal: Could not establish a configuration source' >&2\nexit 1\n",
        "echo 'scontrol: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory, "
        "retrying in 1sec up to 60sec' >&2\nexec sleep 60\n",
    ],
    ids=["none", "missing"],
)
def test_slurm_commands_without_a_cluster_are_a_mistake_of_the_user_and_not_of_a_server(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{script}")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "QUERY_TIMEOUT_S", 1)
    assert main(["profile", "slurm", "--show"]) == 2
    assert capsys.readouterr().err == (
        "error: scontrol finds no slurm.conf here; run this on a login node of a Slurm cluster, or set SLURM_CONF\n"
    )


def test_a_machine_without_the_program_which_is_told_so(tmp_path: Path) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="the extra slurm is not installed")
    for arguments in (["profile", "check"], ["run", "--dry-run"]):
        command = [sys.executable, "-m", "eopipe", *arguments]
        environment = os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: the program which is not in the PATH")
        assert len(done.stderr.splitlines()) == 1
