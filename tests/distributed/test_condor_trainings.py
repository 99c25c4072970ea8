"""The trainings of a run with trials as one DAG of HTCondor, from the commands that a dry run prints."""

import shlex
from pathlib import Path

import pytest
from fake_condor import htcondor2, run_dag
from trainings import Data, payload, run_stage

from eopipe.text_files import read_json

SETTINGS = ("--epochs", "3", "--processes", "2", "--width", "8", "--checkpoint-every", "3", "--batch", "32")
# A setting for each trial; the second learns nothing.
TRIALS = {"fast": (), "slow": ("--learning-rate", "1e-7")}


def planned(submit_folder: Path, data: Data, *more: str) -> Path:
    """A file with the lines of a dry run: two trials, of which one continues behind a rung."""
    moved = Data(Path("in put"), [str(Path("in put") / Path(name).relative_to(data.root)) for name in data.tiles])
    shared = [*moved.stores(), *moved.cut(), *SETTINGS, *more]
    at_rung = {name: f"out/rung-0/{name}" for name in TRIALS}
    lines = []
    for name, settings in TRIALS.items():
        words = ["train", *shared, *settings]
        until = [*words, "--model", at_rung[name], "--until", "0.3"]
        end = [*words, "--model", f"out/{name}", "--continued", at_rung[name], "--promoted", "out/rung-0.json"]
        lines += [until, end]
    halving = ["choose", "--reducer", "halving", "--models", *at_rung.values()]
    lines.append([*halving, "--rung", "out/rung-0.json", "--count", "1"])
    plan = submit_folder / "plan.txt"
    log = "out/logs/train.log"
    plan.write_text(
        "Building DAG of jobs...\nrule train_rung:\n    resources: knobs=--state state/train\n"
        + "".join(f"Shell command: exec eopipe {shlex.join(words)}  > {log} 2>&1\n\n" for words in lines)
    )
    return plan


def test_each_trial_is_a_job_that_waits_for_its_rung(data: Data, submit_folder: Path) -> None:
    assert run_stage("condor", "trainings", planned(submit_folder, data), "--gpu", "--memory-mb", 7000) == 0
    dag = (submit_folder / "condor/trainings.dag").read_text().splitlines()
    rungs = [f"out-rung-0-{name}" for name in TRIALS]
    jobs = [line.split()[1] for line in dag if line.startswith("JOB ")]
    assert sorted(jobs) == sorted(["out-fast", "out-slow", "out-rung-0-json", *rungs])
    assert {line for line in dag if line.startswith("PARENT ")} == {
        f"PARENT {' '.join(rungs)} CHILD out-rung-0-json",
        "PARENT out-rung-0-fast out-rung-0-json CHILD out-fast",
        "PARENT out-rung-0-slow out-rung-0-json CHILD out-slow",
    }
    names = ("request_memory", "request_gpus", "checkpoint_exit_code", "transfer_output_files")
    requests = {}
    for job in jobs:
        description = htcondor2.Submit((submit_folder / f"condor/{job}.sub").read_text())
        requests[job] = [description.expand(name) if name in description else "" for name in names]
    assert requests["out-fast"] == ["7000MB", "2", "85", "out/fast, out/fast.run.json"]
    assert requests["out-rung-0-json"] == ["7000MB", "", "", "out/rung-0.json, out/rung-0.json.run.json"]
    carried = htcondor2.Submit((submit_folder / "condor/out-slow.sub").read_text()).expand("transfer_input_files")
    assert {"out/rung-0/slow", "out/rung-0.json", "in put/split.json"} <= set(carried.split(", "))


def test_a_plan_that_one_dag_cannot_run_is_refused(
    data: Data, submit_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = planned(submit_folder, data, "--nodes", "2")
    assert run_stage("condor", "trainings", several) == 2
    assert "set train.nodes to 1" in capsys.readouterr().err
    early = planned(submit_folder, data)
    (submit_folder / "in put/split.json").unlink()
    assert run_stage("condor", "trainings", early) == 3
    assert "in put/split.json is not there, and no training of plan" in capsys.readouterr().err
    (submit_folder / "empty.txt").write_text("Nothing to be done (all requested files are present and up to date).\n")
    assert run_stage("condor", "trainings", submit_folder / "empty.txt") == 3
    assert "has no training; write it with snakemake" in capsys.readouterr().err
    assert run_stage("condor", "trainings", submit_folder / "none.txt") == 3
    assert "none.txt cannot be read" in capsys.readouterr().err
    assert not (submit_folder / "condor").exists()


@pytest.mark.exhaustive
def test_trials_in_a_pool_end_with_the_bytes_of_a_training_elsewhere(
    data: Data, submit_folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    assert run_stage("condor", "trainings", planned(submit_folder, data)) == 0
    assert run_dag(submit_folder / "condor/trainings.dag", submit_folder, tmp_path / "pool") == 0
    assert read_json(submit_folder / "out/rung-0.json")["promoted"] == ["fast"]
    assert payload(submit_folder / "out/fast") == undisturbed
    assert "event=world" not in (submit_folder / "condor/out-slow.0.out").read_text()
    for name in ("fast", "slow", "rung-0/fast", "rung-0/slow", "rung-0.json"):
        assert (submit_folder / f"out/{name}.run.json").is_file()
