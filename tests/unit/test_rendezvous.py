"""Where a launcher runs, what torchrun's agent gets there, and how agents of one group recognise each other."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import HashStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousStateError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.utils import macros as torchrun_macros

from eopipe.errors import UsageError
from eopipe.launch import rendezvous as group
from eopipe.launch import torchrun
from eopipe.launch.environment import (
    LOOPBACK,
    LOWEST_PORT,
    PORTS,
    ClusterEnvironment,
    NodeRange,
    address_towards,
    check_step,
    detect_environment,
    expand_hostlist,
    interface_of,
    listen,
    listen_address,
    open_endpoint,
    parse_nodes,
    read_endpoint,
    rendezvous_port,
    srun_command,
)
from eopipe.launch.launch import launch
from eopipe.launch.rendezvous import GroupRendezvous, SignedBackend
from eopipe.launch.torchrun import LocalRendezvous, Workers, check_torch, run_agent

STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "n[09-10],gpu7",
    "SLURM_JOB_NODELIST": "n[01-20]",
    "SLURM_NODEID": "2",
}


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],m09", ["n1", "n2", "n3", "n7", "m09"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("rack[1-2]n[01,03]-ib", ["rack1n01-ib", "rack1n03-ib", "rack2n01-ib", "rack2n03-ib"]),
        ("a-b.example.org,c[0]", ["a-b.example.org", "c0"]),
        ("", []),
    ],
)
def test_a_node_list_of_slurm_names_its_hosts_in_order(hostlist: str, names: list[str]) -> None:
    assert list(expand_hostlist(hostlist)) == names


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 900), st.integers(0, 40))))
def test_every_host_of_a_node_list_is_named_once_with_its_width(ranges: list[tuple[str, int, int]]) -> None:
    hostlist = ",".join(f"{name}[{first:04}-{first + count:04}]" for name, first, count in ranges)
    names = [f"{name}{number:04}" for name, first, count in ranges for number in range(first, first + count + 1)]
    assert list(expand_hostlist(hostlist)) == names


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 99), st.integers(1, 99))
def test_nodes_are_one_number_or_a_minimum_and_a_maximum(minimum: int, maximum: int) -> None:
    assert parse_nodes(str(minimum)) == NodeRange(minimum, minimum)
    if minimum <= maximum:
        assert parse_nodes(f"{minimum}:{maximum}") == NodeRange(minimum, maximum)
        assert parse_nodes(f"{minimum}:{maximum}").is_elastic == (minimum < maximum)
    else:
        with pytest.raises(UsageError, match=r"like 1:4"):
            parse_nodes(f"{minimum}:{maximum}")


@pytest.mark.parametrize("text", ["0", "", "0:2", "two", "1:", "-1", "1:2:3"])
def test_other_texts_for_nodes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"train\.nodes"):
        parse_nodes(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_jobs_of_slurm_have_ports_that_linux_gives_to_nobody_by_itself(job: int) -> None:
    assert LOWEST_PORT <= rendezvous_port(str(job)) < LOWEST_PORT + PORTS <= 32768
    assert rendezvous_port(str(job)) != rendezvous_port(str(job + 1))


def test_one_node_needs_nothing_of_its_environment_but_a_step_of_one_node() -> None:
    for environment in ({}, {"SLURM_JOB_ID": "1"}, {"EOPIPE_RDZV_ENDPOINT": "elsewhere:1"}):
        check_step(environment, NodeRange(1, 1))
    with pytest.raises(UsageError, match=r"has 3 nodes and 3 tasks, but train\.nodes is 1;"):
        check_step(STEP, NodeRange(1, 1))


def test_a_task_of_a_step_of_slurm_knows_the_first_host_the_port_and_its_own_number() -> None:
    environment = detect_environment(STEP, NodeRange(2, 3), "abc")
    assert environment == ClusterEnvironment(NodeRange(2, 3), "slurm-4711-3-0", 2, port=24711, peers=("n10", "gpu7"))
    again = detect_environment(STEP | {"SLURM_RESTART_COUNT": "1"}, NodeRange(2, 3), "abc")
    assert again.group != environment.group, "a job that was requeued never meets what it was before"


@pytest.mark.parametrize(
    ("change", "nodes", "message"),
    [
        ({}, NodeRange(1, 1), "has 3 nodes and 3 tasks, but train.nodes is 1;"),
        ({}, NodeRange(4, 4), "one task per node: srun --overlap --nodes=4 --ntasks=4 --ntasks-per-node=1"),
        ({"SLURM_STEP_NUM_TASKS": "6"}, NodeRange(3, 3), "3 nodes and 6 tasks"),
    ],
)
def test_a_place_and_nodes_that_cannot_go_together_are_refused(
    change: dict[str, str], nodes: NodeRange, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        detect_environment(STEP | change, nodes, "abc")


def test_what_the_environment_says_overrides_slurm() -> None:
    variables = {
        "EOPIPE_RDZV_ENDPOINT": "head.example:2900",
        "EOPIPE_RDZV_ID": "run-7",
        "EOPIPE_RDZV_FILE": "/s/meeting",
    }
    environment = detect_environment(STEP | variables, NodeRange(1, 4), "abc")
    assert environment == ClusterEnvironment(
        NodeRange(1, 4), "run-7", None, "head.example", 2900, file=Path("/s/meeting")
    )
    assert (
        detect_environment({"EOPIPE_RDZV_FILE": "meeting"}, NodeRange(2, 2), "abc").file == Path("meeting").absolute()
    )


@pytest.mark.parametrize("variables", [{"EOPIPE_RDZV_ENDPOINT": "a:b"}, {"EOPIPE_RDZV_ENDPOINT": "a:99999"}])
def test_an_end_point_that_is_none_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="host:port"):
        detect_environment(variables, NodeRange(2, 2), "abc")
    with pytest.raises(UsageError, match="letters"):
        detect_environment({"EOPIPE_RDZV_ID": "a b"}, NodeRange(2, 2), "abc")


def test_the_agent_of_a_node_gets_its_workers_with_command_environment_and_restarts() -> None:
    command = ("python", "-m", "eopipe.training.worker", "/state/$$/job.json")
    workers = Workers(command, {"OMP_NUM_THREADS": "3"}, processes=4, restarts=5, log_folder=Path("/state/logs"))
    rendezvous = LocalRendezvous("run.7", LOOPBACK)
    spec = workers.spec(rendezvous, torchrun.DefaultLogsSpecs(log_dir="/state/logs"))
    assert (spec.local_world_size, spec.max_restarts, spec.rdzv_handler) == (4, 5, rendezvous)
    line = [spec.entrypoint, *torchrun_macros.substitute(list(spec.args), "2")]
    assert line == ["env", "OMP_NUM_THREADS=3", *command], "torchrun replaces nothing in it"


def test_an_agent_on_one_node_meets_only_itself_on_loopback() -> None:
    rendezvous = LocalRendezvous("run.7", LOOPBACK)
    first, second = rendezvous.next_rendezvous(), rendezvous.next_rendezvous()
    assert (first.rank, first.world_size, rendezvous.num_nodes_waiting()) == (0, 1, 0)
    assert first.store is not second.store, "a restart begins with an empty store"
    assert {info.bootstrap_store_info.master_addr for info in (first, second)} == {LOOPBACK}
    assert isinstance(first.store, torch.distributed.HashStore), "it listens on no port"


def test_a_launcher_on_one_node_makes_no_endpoint_and_no_store_that_others_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[RendezvousHandler] = []

    def run_agent(workers: Workers, rendezvous: Callable[[], RendezvousHandler], status: Path, token: int) -> str:
        launched.append(rendezvous())
        return "done"

    monkeypatch.setattr(torchrun, "run_agent", run_agent)
    monkeypatch.delattr(group, "TCPStore")
    monkeypatch.delattr("eopipe.launch.launch.open_endpoint")
    launch(tmp_path / "job.json", 1, processes=2, restarts=3, threads=1, wait_s=60.0, environment={})
    assert [type(rendezvous) for rendezvous in launched] == [LocalRendezvous]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("previous", [None, "SIGTERM"])
def test_a_variable_that_only_torch_reads_is_afterwards_as_before(
    previous: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, during = "TORCHELASTIC_SIGNALS_TO_HANDLE", []
    monkeypatch.delenv(name, raising=False)
    if previous:
        monkeypatch.setenv(name, previous)
    monkeypatch.setattr(torchrun, "_run", lambda workers, rendezvous: during.append(os.environ[name]))
    workers = Workers(("python",), {}, processes=1, restarts=0, log_folder=Path("/state/logs"))
    assert run_agent(workers, lambda: LocalRendezvous("run.7", LOOPBACK), Path("/state/status.json"), 1) == "lost"
    assert "SIGUSR1" in during[0]
    assert os.environ.get(name) == previous


def test_a_rendezvous_of_many_nodes_waits_as_long_as_it_is_told_and_notices_silence_after_ten_seconds() -> None:
    endpoint, listening = open_endpoint(ClusterEnvironment(NodeRange(1, 2), "run", host=LOOPBACK), 3)
    rendezvous = GroupRendezvous.join(endpoint, listening.detach(), LOOPBACK, NodeRange(1, 2), 90.0)
    settings = rendezvous.settings
    assert (settings.run_id, settings.min_nodes, settings.max_nodes) == ("run.3", 1, 2)
    assert (settings.timeout.join.total_seconds(), settings.timeout.last_call.total_seconds()) == (90, 5)
    assert settings.keep_alive_interval.total_seconds() * settings.keep_alive_max_attempt == 10
    assert not rendezvous.use_agent_store
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in os.environ
    assert rendezvous.shutdown()


AGENT = torchrun.LocalElasticAgent


@pytest.mark.parametrize(
    ("owner", "name", "other", "named"),
    [
        (AGENT, "_shutdown", None, "_shutdown"),
        (torchrun.PContext, "close", None, "close"),
        (group.dynamic, "_RendezvousExitOp", None, "_RendezvousExitOp"),
        (torchrun.DistributedDataParallel, "_get_ddp_logging_data", None, "_get_ddp_logging_data"),
        # Other parameters, and another attribute.
        (AGENT, "_shutdown", lambda agent: None, "_shutdown"),
        (AGENT, "__init__", lambda agent, spec, logs_specs, shutdown_timeout: None, "_pcontext"),
    ],
)
def test_a_torch_without_a_part_that_is_used_is_refused_in_one_sentence(
    owner: object, name: str, other: object, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_torch()
    monkeypatch.setattr(owner, name, other) if other else monkeypatch.delattr(owner, name)
    part = rf"it lacks {owner.__name__}\.{named}"
    with pytest.raises(UsageError, match=rf"torch .* is not supported by eopipe \({part}\); .* tested with 2\.13"):
        check_torch()


def test_a_step_has_one_task_a_node_and_ends_when_its_nodes_must() -> None:
    fixed, free = srun_command(NodeRange(2, 2), 4), srun_command(NodeRange(1, 3), 1)
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--wait=30"} < set(fixed)
    assert {"--nodes=3", "--ntasks=3", "--no-kill", "--wait=0"} < set(free)


def test_a_port_that_is_taken_is_not_waited_for() -> None:
    with listen(LOOPBACK, 0) as first:
        port = first.getsockname()[1]
        with listen(LOOPBACK, port) as other:
            assert other.getsockname()[1] not in (0, port)
            assert other.getsockname()[0] == LOOPBACK


def test_the_first_node_of_many_listens_on_its_address_towards_the_others() -> None:
    assert listen_address(ClusterEnvironment(NodeRange(1, 1), "a", host=LOOPBACK)) == LOOPBACK
    address = listen_address(ClusterEnvironment(NodeRange(2, 2), "a", peers=("nowhere.invalid",)))
    assert address == (address_towards("192.0.2.1") or LOOPBACK)
    assert interface_of(address) in {name for _, name in socket.if_nameindex()}
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") == ""
    assert listen_address(ClusterEnvironment(NodeRange(2, 2), "a", host="203.0.113.9")) == address, (
        "an address of another host is not listened on"
    )


def test_an_endpoint_is_whole_private_and_known_by_its_group_and_token(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "meeting.json"
    assert read_endpoint(path) is None
    endpoint, listening = open_endpoint(ClusterEnvironment(NodeRange(1, 1), "run", host=LOOPBACK), 3)
    endpoint.write(path)
    assert read_endpoint(path) == endpoint
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["meeting.json"]
    assert (endpoint.group, endpoint.token, endpoint.host) == ("run.3", 3, LOOPBACK)
    with listening:
        assert endpoint.is_reachable()
    assert not endpoint.is_reachable()
    other, socket_of_other = open_endpoint(ClusterEnvironment(NodeRange(1, 1), "run", host=LOOPBACK), 3)
    socket_of_other.close()
    assert other.secret != endpoint.secret
    path.write_text('{"group": "run"')
    assert read_endpoint(path) is None


def test_only_signed_states_of_the_group_are_read() -> None:
    inner = C10dRendezvousBackend(HashStore(), "run")
    member, outsider = SignedBackend(inner, "secret"), SignedBackend(inner, "guess")
    assert member.get_state() is None
    reply = member.set_state(b"first")
    assert reply is not None
    assert (reply[0], reply[2]) == (b"first", True)
    state = member.get_state()
    assert state is not None
    assert state[0] == b"first"
    with pytest.raises(RendezvousStateError, match="a foreign process wrote"):
        outsider.get_state()
    assert outsider.set_state(b"forged", state[1]) is not None
    with pytest.raises(RendezvousStateError, match="a foreign process wrote"):
        member.get_state()
