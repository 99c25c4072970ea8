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
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
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
        command = snakemake("--profile", ROOT / "profiles" / name, *hasty, "--set-resources", "made:gpu=2")
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
        ("pbs", "select=1:ncpus=2:mem=700mb:ngpus=2 -l walltime=7:00", "mem=1400mb:ngpus=2 -l walltime=7:00"),
        (
            "lsf",
            "-n 2 -R span[hosts=1] -W 7 -M 700MB -R rusage[mem=700MB] -gpu num=2",
            "-M 1400MB -R rusage[mem=1400MB]",
        ),
        ("kubernetes", '"memory": "700M", "nvidia.com/gpu": "2"} 420', '"memory": "1400M", "nvidia.com/gpu": "2"} 420'),
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
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == [status]


def put_jobs(pool: Path, engine: str) -> list[str]:
    """Six jobs in the queue: two that run, two that succeeded, two that failed; their numbers."""
    numbers = []
    for number, code in enumerate(("", "", "0\n", "0\n", "1\n", "1\n")):
        (pool / f"{number}.lock").touch()
        labels = {"labels": {"app.kubernetes.io/name": "eopipe"}}
        (pool / f"{number}.json").write_text(json.dumps({"metadata": labels}))
        if code:
            (pool / f"{number}.code").write_text(code)
        numbers.append(f"{number}.server" if engine == "pbs" else str(number))
    return numbers


@pytest.mark.exhaustive
@pytest.mark.parametrize(("engine", "single"), [("pbs", 4), ("lsf", 0), ("kubernetes", 0)])
def test_the_engine_is_asked_once_for_all_jobs_and_its_answer_is_kept(engine: str, single: int, tmp_path: Path) -> None:
    numbers = put_jobs(tmp_path, engine)
    variables = os.environ | {"POOL": str(tmp_path), "PATH": f"{ROOT / 'tests/engines'}:{os.environ['PATH']}"}

    def statuses(keep: int) -> list[str]:
        lines = [[ROOT / f"profiles/{engine}/status.sh", number] for number in numbers]
        env = variables | {"EOPIPE_STATUS_SECONDS": str(keep)}
        run = {"capture_output": True, "text": True, "cwd": tmp_path, "env": env}
        return [subprocess.run(line, check=True, **run).stdout.strip() for line in lines]

    expected = ["running"] * 2 + ["success"] * 2 + ["failed"] * 2
    # The first call finds the answer missing; PBS is asked alone for each job that has ended, after a newer answer.
    statuses(3600)
    time.sleep(1.1)
    (tmp_path / "questions").unlink()
    assert statuses(0) == expected
    assert len([line for line in (tmp_path / "questions").read_text().splitlines() if "qstat" in line]) == single
    (tmp_path / "questions").write_text("")
    assert statuses(3600) == expected
    assert len((tmp_path / "questions").read_text().splitlines()) == single


@pytest.mark.parametrize("engine", ["pbs", "lsf", "kubernetes"])
def test_a_job_that_is_newer_than_the_answer_is_not_a_failed_one(engine: str, tmp_path: Path) -> None:
    numbers = put_jobs(tmp_path, engine)
    variables = os.environ | {"POOL": str(tmp_path), "PATH": f"{ROOT / 'tests/engines'}:{os.environ['PATH']}"}
    for number in (numbers[0], "17"):
        line = [ROOT / f"profiles/{engine}/status.sh", number]
        run = {"capture_output": True, "text": True, "cwd": tmp_path, "env": variables}
        assert subprocess.run(line, check=True, **run).stdout.strip() == "running"
    assert len((tmp_path / "questions").read_text().splitlines()) == 1


def submitted_pod(folder: Path, settings: dict[str, str], **resources: object) -> dict[str, Any]:
    """The pod of a Job that submit.py creates, with other settings at its top."""
    script = (ROOT / "profiles/kubernetes/submit.py").read_text()
    for name, value in settings.items():
        script, count = re.subn(rf"^{name}\b(.*?) = .*$", rf"{name}\1 = {value}", script, flags=re.MULTILINE)
        assert count == 1
    (folder / "submit.py").write_text(script)
    job = {"rule": "train", "threads": 2, "resources": {"mem_mb": 4000, "runtime": 5} | resources}
    (folder / "job.sh").write_text(f"# properties = {json.dumps(job)}\ntrue\n")
    variables = os.environ | {"POOL": str(folder), "PATH": f"{ROOT / 'tests/engines'}:{os.environ['PATH']}"}
    line = [sys.executable, "submit.py", "job.sh"]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=True, cwd=folder)
    pod: dict[str, Any] = json.loads((folder / f"{done.stdout.strip()}.json").read_text())["spec"]["template"]["spec"]
    return pod


def test_a_pod_has_shared_memory_and_the_user_of_the_one_that_submits_it(tmp_path: Path) -> None:
    pod = submitted_pod(tmp_path, {})
    assert {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2000M"}} in pod["volumes"]
    assert {"name": "memory", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]
    assert pod["securityContext"] == {"runAsUser": os.getuid(), "runAsGroup": os.getgid(), "fsGroup": os.getgid()}
    assert not {"serviceAccountName", "imagePullSecrets"} & set(pod)
    assert (pod["nodeSelector"], pod["tolerations"]) == ({}, [])


def test_account_secret_user_and_nodes_of_a_pod_are_settings(tmp_path: Path) -> None:
    settings = {
        "SERVICE_ACCOUNT": "'runner'",
        "PULL_SECRET": "'registry'",
        "RUN_AS": "(1001, 1002)",
        "NODES": "{'pool': 'batch'}",
        "GPU_NODES": "{'gpu': 'a100'}",
        "TOLERATIONS": "[{'key': 'batch', 'operator': 'Exists'}]",
    }
    pod = submitted_pod(tmp_path, settings, gpu=2)
    assert (pod["serviceAccountName"], pod["imagePullSecrets"]) == ("runner", [{"name": "registry"}])
    assert pod["securityContext"] == {"runAsUser": 1001, "runAsGroup": 1002, "fsGroup": 1002}
    assert pod["nodeSelector"] == {"pool": "batch", "gpu": "a100"}
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["batch", "nvidia.com/gpu"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert submitted_pod(tmp_path, settings)["nodeSelector"] == {"pool": "batch"}


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["trials", "rungs", "members"])
def test_the_plan_of_trials_or_members_becomes_one_dag(kind: str, finished: Project, tmp_path: Path) -> None:
    trials: dict[str, Any] = {"space": {"width": [4, 8, 12]}}
    changes = {"trials": {"trials": trials}, "rungs": {"trials": trials | {"rungs": [0.5]}}, "members": {"members": 3}}
    folder = tmp_path / "project"
    shutil.copytree(finished.folder, folder, symlinks=True)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump(config | changes[kind]))
    command = snakemake("--snakefile", ROOT / "Snakefile", "--configfile", "config.yaml", "--cores", 2)
    run = {"cwd": folder, "env": environment(), "text": True, "timeout": 120}
    with (folder / "plan.txt").open("w") as plan:
        subprocess.run([*command, "--dry-run", "--printshellcmds"], stdout=plan, stderr=plan, check=True, **run)
    condor = [sys.executable, "-m", "eopipe", "condor", "trainings", "plan.txt"]
    subprocess.run(condor, check=True, **run)
    dag = (folder / "condor/trainings.dag").read_text()
    jobs = re.findall(r"^JOB (\S+) ", dag, re.MULTILINE)
    parents = {child: names.split() for names, child in re.findall(r"^PARENT (.*) CHILD (\S+)$", dag, re.MULTILINE)}
    assert len(jobs) == {"trials": 3, "rungs": 7, "members": 3}[kind]
    if kind != "rungs":
        assert not parents
        return
    rung = "results-trials-rung-0-json"
    at_rung = {name for name in jobs if name.startswith("results-trials-rung-0-model-trial-")}
    assert {*parents[rung]} == at_rung
    for name in {*jobs} - at_rung - {rung}:
        assert parents[name] == [name.replace("trials-", "trials-rung-0-", 1), rung]
