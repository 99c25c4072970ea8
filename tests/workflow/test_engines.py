"""The profiles of other engines: each plans the pipeline, and a job really goes through, beside small stand-ins.

HTCondor's daemons, PBS, LSF and Kubernetes cannot be installed here. Their commands and HTCondor's schedd are programs
in tests/engines, which take what the profile says and run it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import ROOT, Project, commands, environment

from eopipe.cli import main

ENGINES = ("htcondor", "kubernetes", "lsf", "pbs")
# Fails with the memory of the first attempt.
SNAKEFILE = """
rule made:
    output: "made.txt"
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 700 * attempt,
        runtime=7,
    shell: "echo {resources.mem_mb} >> tries.txt; test {resources.mem_mb} -gt 1000 && echo $PWD > {output}"
"""


def snakemake(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "snakemake", *map(str, arguments)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each engine, in which a rule went through it; all at a time."""
    folders, running = {}, {}
    for name in ENGINES:
        folders[name] = folder = tmp_path_factory.mktemp(name)
        (folder / "Snakefile").write_text(SNAKEFILE)
        (folder / "pool").mkdir()
        variables = environment() | {"POOL": str(folder / "pool")}
        variables["PATH"] = f"{ROOT / 'tests/engines'}:{variables['PATH']}"
        if name == "htcondor":
            variables["PYTHONPATH"] = f"{ROOT / 'tests/engines'}:{variables.get('PYTHONPATH', '')}"
        # The intervals of the profile are those of a shared cluster.
        hasty = ("--seconds-between-status-checks", 1, "--max-status-checks-per-second", 5, "--latency-wait", 5)
        command = snakemake("--profile", ROOT / "profiles" / name, *hasty)
        with (folder / "output").open("w") as file:
            running[name] = subprocess.Popen(command, cwd=folder, env=variables, stdout=file, stderr=file)
    codes = {name: process.wait(timeout=240) for name, process in running.items()}
    assert set(codes.values()) == {0}, [(folders[name] / "output").read_text() for name, code in codes.items() if code]
    return folders


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENGINES)
def test_a_job_goes_through_and_one_that_failed_is_tried_again_with_more(name: str, ran: dict[str, Path]) -> None:
    assert (ran[name] / "made.txt").read_text().strip() == str(ran[name])
    assert (ran[name] / "tries.txt").read_text().split() == ["700", "1400"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("pbs", "select=1:ncpus=2:mem=700mb -l walltime=7:00", "select=1:ncpus=2:mem=1400mb -l walltime=7:00"),
        ("lsf", "-n 2 -R span[hosts=1] -W 7 -M 700MB -R rusage[mem=700MB]", "-M 1400MB -R rusage[mem=1400MB]"),
        ("kubernetes", '{"cpu": "2", "memory": "700M"} 420', '{"cpu": "2", "memory": "1400M"} 420'),
        ("htcondor", "2 6000MB", "2 12000MB"),
    ],
)
def test_the_engine_gets_what_the_rule_requests(name: str, first: str, second: str, ran: dict[str, Path]) -> None:
    requests = (ran[name] / "pool/requested").read_text().splitlines()
    assert len(requests) == 2
    assert first in requests[0]
    assert second in requests[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENGINES)
def test_the_pipeline_is_planned(name: str, project: Project) -> None:
    command = snakemake("--dry-run", "--profile", ROOT / "profiles" / name, "--snakefile", ROOT / "Snakefile")
    completed = subprocess.run(
        [*command, "--configfile", "config.yaml"],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "eopipe train " in completed.stdout or "rule train:" in completed.stdout


@pytest.mark.parametrize(
    ("program", "output", "code", "status"),
    [
        ("pbs qstat", "qstat: Unknown Job Id 7", 153, "failed"),
        ("pbs qstat", "Connection refused", 111, "running"),
        ("pbs qstat", "    job_state = Q", 0, "running"),
        ("pbs qstat", "    job_state = C\n    exit_status = 0", 0, "success"),
        ("pbs qstat", "    job_state = F\n    Exit_status = 271", 0, "failed"),
        ("lsf bjobs", "PEND", 0, "running"),
        ("lsf bjobs", "Job <7> is not found", 255, "failed"),
        ("lsf bjobs", "LSF is down. Please wait ...", 255, "running"),
        ("kubernetes kubectl", 'Error from server (NotFound): jobs.batch "7" not found', 1, "failed"),
        ("kubernetes kubectl", "The connection to the server was refused", 1, "running"),
        ("kubernetes kubectl", "FailureTarget Failed", 0, "failed"),
    ],
)
def test_an_engine_that_does_not_answer_is_not_a_failed_job(
    program: str, output: str, code: int, status: str, tmp_path: Path
) -> None:
    engine, command = program.split()
    (tmp_path / command).write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    (tmp_path / command).chmod(0o755)
    variables = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [ROOT / f"profiles/{engine}/status.sh", "7"]
    assert subprocess.run(line, env=variables, capture_output=True, text=True, check=True).stdout.split() == [status]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENGINES)
def test_a_template_is_copied_once_with_its_scripts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["profile", name]) == 0
    copied = tmp_path / "snakemake" / name
    for file in (ROOT / "profiles" / name).iterdir():
        assert (copied / file.name).read_bytes() == file.read_bytes()
        assert os.access(copied / file.name, os.X_OK) == os.access(file, os.X_OK)
    assert f"--profile {name} means {copied}" in capsys.readouterr().out
    assert main(["profile", "check", name]) == 0
    assert "are not checked" in capsys.readouterr().out
    assert main(["profile", name]) == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err


def test_scripts_beside_the_profiles_are_clean() -> None:
    scripts = [*ROOT.glob("profiles/*/*.sh"), ROOT / "eopipe/clusters/job.sh"]
    checker = shutil.which("shellcheck", path=environment()["PATH"])
    assert checker
    completed = subprocess.run([checker, "--format=json", *scripts], capture_output=True, text=True, check=False)
    assert json.loads(completed.stdout) == []


@pytest.mark.exhaustive
def test_the_line_of_a_training_becomes_a_submit_description(finished: Project, tmp_path: Path) -> None:
    command = snakemake("--snakefile", ROOT / "Snakefile", "--configfile", "config.yaml", "--cores", 2)
    run = {"cwd": finished.folder, "env": environment(), "capture_output": True, "text": True, "timeout": 120}
    planned = subprocess.run([*command, "--dry-run", "--printshellcmds", "--forcerun", "train"], check=True, **run)
    [line] = [line for line in commands(planned.stdout) if line[0] == "train"]
    condor = [sys.executable, "-m", "eopipe", "condor", "--folder", str(tmp_path / "condor"), *line[1:]]
    subprocess.run(condor, check=True, **run)
    description = (tmp_path / "condor/train.sub").read_text()
    [carried] = re.findall(r"^transfer_input_files += (.*)$", description, re.MULTILINE)
    assert all((finished.folder / name).exists() for name in carried.split(", "))
    assert "transfer_output_files   = results/model, results/model.run.json\n" in description
