"""Many nodes, here as launchers on one: they meet, join, leave, lose the first one, and an outsider writes to them."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch.distributed as dist
from trainings import Data, Training, payload, ranks, workers

from eopipe.launch.environment import ENDPOINT_FILE, Endpoint, read_endpoint, rendezvous_port

pytestmark = pytest.mark.launch
SETTINGS = ("--epochs", "10", "--batch", "16", "--processes", "1", "--checkpoint-every", "2", "--deterministic")
SETTINGS += ("--shards", "2", "--architecture", "faulty_models:Paused", "--restarts", "0")
LOCAL = {"EOPIPE_RDZV_ENDPOINT": "127.0.0.1"}


@dataclass
class Node:
    """A launcher in a session of its own, as on a node of its own."""

    process: "subprocess.Popen[str]"
    log: Path

    def read_log(self) -> str:
        return self.log.read_text()

    def end(self, seconds: float = 120) -> int:
        return self.process.wait(timeout=seconds)

    def kill(self) -> None:
        """Kill its launcher, which takes all the others with it."""
        self.process.kill()
        self.process.wait()


@dataclass
class Group:
    """Launchers of one training, which rests a while at each step until it is let go."""

    training: Training
    nodes: list[Node] = field(default_factory=list)
    before: int = 0

    @property
    def pause(self) -> Path:
        return self.training.folder / "pause"

    def start(self, *more: str, **variables: str) -> Node:
        log = self.training.folder / f"{len(self.nodes)}.log"
        environment = os.environ | {"PAUSE": str(self.pause)} | variables
        self.before = self.training.newest()
        with log.open("w") as file:
            line = self.training.command(*more)
            started = subprocess.Popen(line, stderr=file, text=True, env=environment, start_new_session=True)
        self.nodes.append(Node(started, log))
        return self.nodes[-1]

    def wait_for_world(self, size: int, steps: int = 2) -> None:
        """Wait until so many workers have written a checkpoint after some steps."""
        deadline = time.monotonic() + 150
        while True:
            assert time.monotonic() < deadline, [node.read_log() for node in self.nodes]
            time.sleep(0.1)
            newest = max(self.training.state.glob("*/step-*/state.json"), default=None)
            try:
                state = json.loads(newest.read_text()) if newest else {"worlds": []}
            except OSError:
                continue
            if not state["worlds"] or state["step"] <= self.before:
                continue
            since, workers_then = state["worlds"][-1]
            if workers_then == size and state["step"] >= since + steps:
                return

    def let_go(self) -> None:
        self.pause.unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def findable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture(scope="module")
def alone(data: Data, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The model of an undisturbed training on one node."""
    training = Training(data, tmp_path_factory.mktemp("alone"), SETTINGS)
    paths = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"
    completed = training.run(PYTHONPATH=paths)
    assert completed.returncode == 0, completed.stderr
    return payload(training.model)


@pytest.fixture
def group(data: Data, tmp_path: Path) -> Iterator[Group]:
    launchers = Group(Training(data, tmp_path, SETTINGS, cold_start=True))
    launchers.pause.touch()
    yield launchers
    for node in launchers.nodes:
        node.kill()
    for pid in workers(tmp_path):
        os.kill(pid, signal.SIGKILL)


def in_slurm(node: int, job: int) -> dict[str, str]:
    """The variables of a task in a Slurm step over two nodes."""
    step = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2"}
    return step | {"SLURM_STEP_NODELIST": "nowhere[1-2]", "SLURM_NODEID": str(node), "SLURM_PROCID": str(node)}


@pytest.mark.exhaustive
def test_t12_nodes_join_and_leave_by_a_signal_or_by_death_and_nothing_changes(
    group: Group, alone: dict[str, bytes]
) -> None:
    first = group.start("--nodes", "1:2", **LOCAL)
    group.wait_for_world(1)
    dying = group.start("--nodes", "1:2", **LOCAL)
    group.wait_for_world(2)
    dying.kill()
    group.wait_for_world(1)
    leaving = group.start("--nodes", "1:2", **LOCAL)
    group.wait_for_world(2)
    foreign = group.start("--nodes", "1:2", EOPIPE_RDZV_ID="another", **LOCAL)
    assert foreign.end() == 2
    assert f"already running (process {first.process.pid} on " in foreign.read_log()
    leaving.process.terminate()
    assert leaving.end() == 75, leaving.read_log()
    group.wait_for_world(1)
    group.let_go()
    # No restart is granted, so coming and going has cost none.
    assert first.end() == 0, first.read_log()
    assert "DistStoreError" not in first.read_log()
    assert payload(group.training.model) == alone


@pytest.mark.exhaustive
def test_t16_two_nodes_of_slurm_meet_though_the_port_is_taken_and_an_old_meeting_lies_about(
    group: Group, alone: dict[str, bytes], tmp_path: Path
) -> None:
    group.let_go()
    Endpoint("slurm-7001-0-0.1", 1, "127.0.0.1", 1, "old").write(tmp_path / "meeting")
    with socket.create_server(("", rendezvous_port("7001"))):
        steps = [in_slurm(node, 7001) for node in (1, 0)]
        second, first = (group.start("--nodes", "2", **variables) for variables in steps)
        assert (first.end(), second.end()) == (0, 0), first.read_log() + second.read_log()
    assert "event=port_taken" in first.read_log()
    assert "event=world size=2" in first.read_log() + second.read_log()
    assert payload(group.training.model) == alone


@pytest.mark.exhaustive
def test_two_nodes_pause_and_two_nodes_continue_from_the_model_folder(
    group: Group, alone: dict[str, bytes], tmp_path: Path
) -> None:
    group.let_go()
    for job, words in (7002, ["--until", "0.4"]), (7003, ["--continued", str(tmp_path / "paused")]):
        steps = [in_slurm(node, job) for node in (1, 0)]
        second, first = (group.start("--nodes", "2", *words, **variables) for variables in steps)
        assert (first.end(), second.end()) == (0, 0), first.read_log() + second.read_log()
        if job == 7002:
            group.training.model.rename(tmp_path / "paused")
    assert "event=resume" in first.read_log() + second.read_log()
    assert payload(group.training.model) == alone


@pytest.mark.exhaustive
def test_when_the_first_node_is_told_to_stop_or_dies_all_end_and_the_same_command_goes_on(
    group: Group, alone: dict[str, bytes], tmp_path: Path
) -> None:
    variables = LOCAL | {"EOPIPE_RDZV_FILE": str(tmp_path / "shared" / "meeting"), "EOPIPE_RDZV_ID": "submission-1"}
    for stop in (signal.SIGTERM, signal.SIGKILL):
        nodes = [group.start("--nodes", "2", **variables) for _ in range(2)]
        group.wait_for_world(2)
        nodes.sort(key=lambda node: "event=group_joined" in node.read_log())
        nodes[0].process.send_signal(stop)
        assert [node.end() for node in nodes] == [75 if stop == signal.SIGTERM else -9, 75], nodes[1].read_log()
    group.let_go()
    last = group.start("--nodes", "1")
    assert last.end() == 0
    assert "event=resume" in last.read_log()
    assert payload(group.training.model) == alone


@pytest.mark.exhaustive
@pytest.mark.parametrize("nodes", ["1", "1:2"])
def test_t21_nothing_listens_beyond_loopback_and_who_writes_into_the_stores_runs_no_code(
    group: Group, alone: dict[str, bytes], tmp_path: Path, nodes: str
) -> None:
    node = group.start("--nodes", nodes, **LOCAL)
    group.wait_for_world(1)
    listening = sorted({address for pid in workers(tmp_path) for address in ports_of(pid)})
    assert {host for host, _ in listening} == {"127.0.0.1"}
    variables = Path(f"/proc/{ranks(tmp_path)[0]}/environ").read_text().split("\0")
    stores = [int(word.partition("=")[2]) for word in variables if word.startswith("MASTER_PORT=")]
    endpoints = [read_endpoint(path) for path in group.training.state.glob(f"*/{ENDPOINT_FILE}")]
    assert len(endpoints) == (nodes != "1"), "an agent on one node has its store in memory"
    stores += [endpoint.port for endpoint in endpoints if endpoint]
    assert set(stores) <= {port for _, port in listening}
    name = endpoints[0].group if endpoints and endpoints[0] else "run"
    for port in stores:
        outsider = dist.TCPStore("127.0.0.1", port, is_master=False)
        # What would be unpickled: os.mkdir("stolen") in base64.
        outsider.set(f"torch.rendezvous.{name}", "Y3Bvc2l4Cm1rZGlyCihTJ3N0b2xlbicKdFIu")
    if endpoints:
        code = node.end()
        assert code == 75, node.read_log()
        assert "a foreign process wrote into the store" in node.read_log()
        node = group.start("--nodes", nodes, **LOCAL)
    group.let_go()
    assert node.end() == 0, node.read_log()
    assert not Path("stolen").exists()
    assert payload(group.training.model) == alone


def ports_of(pid: int) -> list[tuple[str, int]]:
    """The addresses that a process listens on (proc(5), net/tcp)."""
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            inodes.add(str(path.readlink()))
    addresses = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            host, port = fields[1].split(":")
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address = socket.inet_ntoa(bytes.fromhex(host)[::-1]) if name == "tcp" else host
                addresses.append((address, int(port, 16)))
    return addresses
