"""Trainings on a real Slurm: undisturbed, and through whatever ends their jobs, always the same weights.

Four of them travel at the same time, since most of their time is waiting for Snakemake's next look at the queue.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from clustered import MODEL, Clustered, copied
from daemons import sh, wait
from projects import Project

from slurm import Cluster

JOURNEYS = ("two nodes", "one node", "pre-emptible", "cancelled")


@pytest.fixture(scope="session")
def journeys(
    cluster: Cluster, prepared: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Clustered]"]]:
    """All that is done to the trainings; what they went through and what they ended with."""
    folder = tmp_path_factory.mktemp("journeys")
    made = {name: copied(prepared, folder / name.replace(" ", "-")) for name in JOURNEYS}
    with ThreadPoolExecutor() as pool:
        yield {
            "two nodes": pool.submit(over_two_nodes, made["two nodes"], cluster),
            "one node": pool.submit(on_one_node, made["one node"]),
            "pre-emptible": pool.submit(while_preempted, made["pre-emptible"]),
            "cancelled": pool.submit(cancelled, made["cancelled"]),
        }
    for travelling in made.values():
        travelling.leave()


def over_two_nodes(travelling: Clustered, cluster: Cluster) -> Clustered:
    """An agent killed, a warning before the limit, a lost node."""
    travelling.configure(nodes="2", processes=1)
    nodes = "--nodelist=node[1-2] --signal=TERM@15"
    travelling.profile("--nodes", "2", retries=3, train={"slurm_extra": nodes})
    travelling.brake.touch()
    process = travelling.start(MODEL)
    travelling.strike("an agent is killed", lambda _: kill_agent(travelling))
    travelling.brake.write_text("4")
    travelling.strike("warning before the limit, two nodes", nearly_over)
    travelling.brake.write_text("")

    def lose(_: str) -> None:
        cluster.kill_node(2)
        # sinfo tells one state of several.
        wait(150, lambda: "DOWN" in sh("scontrol", "show", "node", "node2"), "the loss is noticed")
        cluster.start_node(2)

    travelling.strike("a node dies", lose)
    return finished(travelling, process)


def on_one_node(travelling: Clustered) -> Clustered:
    """A warning before the limit, over the limit more often than there are retries, and once more."""
    travelling.configure(processes=1)
    travelling.profile(retries=1, train={"slurm_extra": "--nodelist=node1 --signal=TERM@15"})
    travelling.brake.touch()
    process = travelling.run("--configfile", "config.yaml", "--", MODEL)
    travelling.brake.write_text("4")
    travelling.strike("warning before the limit, one node", nearly_over)
    travelling.under_way()
    over(travelling.jobs[-1])
    assert travelling.end(process) != 0
    process = travelling.run("--configfile", "config.yaml", "--", MODEL)
    travelling.wait_for(lambda: len(travelling.jobs) == 3, "a third job")
    travelling.strike("over its walltime", over)
    return finished(travelling, process)


def cancelled(travelling: Clustered) -> Clustered:
    """Cancelled by its user, and begun again by the same command, on files of nodes whose clocks are ahead."""
    travelling.configure(processes=1)
    travelling.profile(retries=1, train={"slurm_extra": "--nodelist=node1"})
    travelling.brake.touch()
    process = travelling.start(MODEL)
    travelling.under_way()
    sh("scancel", travelling.jobs[-1])
    assert travelling.end(process) != 0
    ahead = time.time() + 180
    for path in (*travelling.folder.glob("results/**/*"), *travelling.folder.glob("state/**/*")):
        os.utime(path, (ahead, ahead))
    return finished(travelling, travelling.start(MODEL))


def while_preempted(travelling: Clustered) -> Clustered:
    """Pre-empted with a time of grace, in which it saves and ends, and without one: Slurm starts it again."""
    travelling.configure(nodes="2", processes=1)
    words = ("--training", "low", "--partition", "low", "--preemptible", "--nodes", "2")
    travelling.profile(*words, train={"slurm_extra": "--nodelist=node[3-4]"})
    travelling.brake.touch()
    process = travelling.start(MODEL)
    travelling.strike("pre-empted, with grace", lambda _: urgent())
    sh("scontrol", "update", "PartitionName=low", "GraceTime=0")

    def at_once() -> None:
        # Slurm would wait two minutes.
        words = ["scontrol", "update", f"jobid={travelling.jobs[-1]}", "StartTime=now"]
        subprocess.run(words, capture_output=True, check=False)

    travelling.strike("pre-empted, without grace", lambda _: urgent(), at_once)
    return finished(travelling, process)


def finished(travelling: Clustered, process: "subprocess.Popen[str]") -> Clustered:
    """Let it go its way to the end, without the brake."""
    travelling.brake.unlink()
    assert travelling.end(process) == 0, travelling.told[-8000:]
    return travelling


def kill_agent(travelling: Clustered) -> None:
    pids = sh("pgrep", "-f", f"eopipe.launching.agent {travelling.folder}").split()
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", pids[-1]], check=True)


def nearly_over(job: str) -> None:
    """Its walltime ends soon. Slurm looks every half minute, and warns by that much earlier."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+45")


def over(job: str) -> None:
    """Its walltime ends before the warning could come."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+1")


def urgent() -> None:
    """A job of more worth wants the nodes for some seconds."""
    where = ("-w", "node[3-4]", "-N2", "-n2", "-c4", "-t2", "-p", "debug")
    sh("sbatch", *where, "-o", "/dev/null", "--wrap", "sleep 3")


def fill(file: Path) -> None:
    """Take all the room that is left."""
    with suppress(OSError), file.open("wb", buffering=0) as open_file:
        while open_file.write(bytes(4096)):
            pass


def test_two_nodes_of_two_processes_give_the_weights_of_four_on_one_machine(
    journeys: dict[str, "Future[Clustered]"], prepared: Project, undisturbed: bytes, tmp_path: Path
) -> None:
    # The others have begun; it does not wait for them.
    clustered = copied(prepared, tmp_path / "project")
    clustered.configure(nodes="2", processes=2)
    clustered.profile("--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2")
    assert clustered.end(clustered.start(MODEL)) == 0, clustered.told[-8000:]
    assert "event=world size=4" in clustered.log()
    assert clustered.weights() == undisturbed


def test_a_full_scratch_is_told_and_the_same_command_goes_on_when_there_is_room(
    cluster: Cluster, journeys: dict[str, "Future[Clustered]"], prepared: Project, undisturbed: bytes, tmp_path: Path
) -> None:
    clustered = copied(prepared, tmp_path / "project")
    clustered.configure(processes=1)
    clustered.place_state(cluster.small / "state")
    clustered.profile(retries=0)
    clustered.brake.touch()
    process = clustered.run("--configfile", "config.yaml", "--", MODEL)
    clustered.under_way()
    fill(cluster.small / "others")
    assert clustered.end(process) == 1
    assert "error: rule train: no space left while writing" in clustered.told.strip().splitlines()[-1]
    (cluster.small / "others").unlink()
    clustered.profile()
    finished(clustered, clustered.run("--configfile", "config.yaml", "--", MODEL))
    assert "event=resume step=" in clustered.log()
    assert clustered.weights() == undisturbed


@pytest.mark.parametrize("name", JOURNEYS)
def test_whatever_ends_its_jobs_a_training_ends_with_the_weights_of_an_undisturbed_one(
    name: str, journeys: dict[str, "Future[Clustered]"], undisturbed: bytes, report: list[str]
) -> None:
    travelled = journeys[name].result()
    report += [str(row) for row in travelled.rows]
    assert travelled.weights() == undisturbed
    resumed = [row.resumed for row in travelled.rows]
    assert resumed == sorted(set(resumed)), "each try made progress"


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("two nodes", {"warning before the limit, two nodes"}),
        ("one node", {"warning before the limit, one node", "over its walltime"}),
        ("pre-emptible", {"pre-empted, with grace", "pre-empted, without grace"}),
    ],
)
def test_a_job_that_is_warned_loses_no_step_though_its_checkpoint_takes_a_while(
    name: str, faults: set[str], journeys: dict[str, "Future[Clustered]"]
) -> None:
    rows = [row for row in journeys[name].result().rows if row.fault in faults]
    assert {row.fault: row.lost for row in rows} == dict.fromkeys(faults, 0)


def test_what_is_killed_loses_no_more_than_the_steps_since_its_checkpoint(
    journeys: dict[str, "Future[Clustered]"],
) -> None:
    rows = {row.fault: row for row in journeys["two nodes"].result().rows}
    assert all(rows[fault].lost <= 6 for fault in ("an agent is killed", "a node dies"))


def test_files_of_nodes_whose_clocks_are_ahead_make_nothing_run_again(
    journeys: dict[str, "Future[Clustered]"],
) -> None:
    told = journeys["cancelled"].result().told
    assert "files had times that have not come yet" in told
    assert set(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", told, re.MULTILINE)) == {"train"}


def test_when_no_retries_are_left_one_sentence_says_why_and_how_to_go_on(
    journeys: dict[str, "Future[Clustered]"],
) -> None:
    travelled = journeys["one node"].result()
    sentence = r"error: rule train: its job \d+ ran over its time limit each time; run the same command again to go on"
    assert len(re.findall(sentence, travelled.told)) == 1


def test_a_job_that_its_user_cancels_is_not_begun_again_and_a_new_run_goes_on(
    journeys: dict[str, "Future[Clustered]"],
) -> None:
    travelled = journeys["cancelled"].result()
    assert f"job {travelled.jobs[0]} was cancelled, so this run does not begin it again" in travelled.told
    assert "event=resume step=" in travelled.log()
