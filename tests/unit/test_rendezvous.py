"""Where a launcher finds itself, what torchrun is told there, and how agents of one group recognise each other."""

import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eopipe.errors import UsageError
from eopipe.launch.endpoint import answers, call, interface, listen, own_address, read_meeting, way_to
from eopipe.launch.environment import (
    LOOPBACK,
    LOWEST,
    PORTS,
    Geometry,
    Nodes,
    Place,
    hosts,
    locate,
    nodes_of,
    port_of,
    srun,
)
from eopipe.launch.launch import words

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
    ("told", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7],m09", ["n1", "n2", "n3", "n7", "m09"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("rack[1-2]n[01,03]-ib", ["rack1n01-ib", "rack1n03-ib", "rack2n01-ib", "rack2n03-ib"]),
        ("a-b.example.org,c[0]", ["a-b.example.org", "c0"]),
        ("", []),
    ],
)
def test_a_node_list_of_slurm_names_its_hosts_in_order(told: str, names: list[str]) -> None:
    assert list(hosts(told)) == names


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.integers(0, 900), st.integers(0, 40))))
def test_every_host_of_a_node_list_is_named_once_with_its_width(ranges: list[tuple[str, int, int]]) -> None:
    told = ",".join(f"{name}[{first:04}-{first + more:04}]" for name, first, more in ranges)
    wanted = [f"{name}{number:04}" for name, first, more in ranges for number in range(first, first + more + 1)]
    assert list(hosts(told)) == wanted


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 99), st.integers(1, 99))
def test_nodes_are_one_number_or_the_fewest_and_the_most(few: int, many: int) -> None:
    assert nodes_of(str(few)) == Nodes(few, few)
    if few <= many:
        assert nodes_of(f"{few}:{many}") == Nodes(few, many)
        assert nodes_of(f"{few}:{many}").elastic == (few < many)
    else:
        with pytest.raises(UsageError, match=r"like 1:4"):
            nodes_of(f"{few}:{many}")


@pytest.mark.parametrize("told", ["0", "", "0:2", "two", "1:", "-1", "1:2:3"])
def test_other_words_for_nodes_are_refused(told: str) -> None:
    with pytest.raises(UsageError, match=r"train\.nodes"):
        nodes_of(told)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_jobs_of_slurm_have_ports_that_linux_gives_to_nobody_by_itself(job: int) -> None:
    assert LOWEST <= port_of(str(job)) < LOWEST + PORTS <= 32768
    assert port_of(str(job)) != port_of(str(job + 1))


def test_one_node_keeps_to_itself_wherever_it_is() -> None:
    for environment in ({}, {"SLURM_JOB_ID": "1"}, {"EOPIPE_RDZV_ENDPOINT": "elsewhere:1"}):
        assert locate(environment, Nodes(1, 1), "abc") == Place(Nodes(1, 1), "abc", host=LOOPBACK)


def test_a_task_of_a_step_of_slurm_knows_the_first_host_the_port_and_its_own_number() -> None:
    place = locate(STEP, Nodes(2, 3), "abc")
    assert place == Place(Nodes(2, 3), "slurm-4711-3-0", 2, port=24711, others=("n10", "gpu7"))
    again = locate(STEP | {"SLURM_RESTART_COUNT": "1"}, Nodes(2, 3), "abc")
    assert again.group != place.group, "a job that was requeued never meets what it was before"


@pytest.mark.parametrize(
    ("change", "nodes", "why"),
    [
        ({}, Nodes(1, 1), "has 3 nodes and 3 tasks, but train.nodes is 1:1"),
        ({}, Nodes(4, 4), "one task a node: srun --overlap --nodes=4 --ntasks=4 --ntasks-per-node=1"),
        ({"SLURM_STEP_NUM_TASKS": "6"}, Nodes(3, 3), "3 nodes and 6 tasks"),
    ],
)
def test_a_place_and_nodes_that_cannot_go_together_are_refused(change: dict[str, str], nodes: Nodes, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        locate(STEP | change, nodes, "abc")


def test_what_the_environment_says_stands_above_slurm() -> None:
    told = {"EOPIPE_RDZV_ENDPOINT": "head.example:2900", "EOPIPE_RDZV_ID": "run-7", "EOPIPE_RDZV_FILE": "/s/meeting"}
    place = locate(STEP | told, Nodes(1, 4), "abc")
    assert place == Place(Nodes(1, 4), "run-7", None, "head.example", 2900, file=Path("/s/meeting"))
    assert locate({"EOPIPE_RDZV_FILE": "meeting"}, Nodes(2, 2), "abc").file == Path("meeting").absolute()


@pytest.mark.parametrize("told", [{"EOPIPE_RDZV_ENDPOINT": "a:b"}, {"EOPIPE_RDZV_ENDPOINT": "a:99999"}])
def test_an_end_point_that_is_none_is_refused(told: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="host:port"):
        locate(told, Nodes(2, 2), "abc")
    with pytest.raises(UsageError, match="letters"):
        locate({"EOPIPE_RDZV_ID": "a b"}, Nodes(2, 2), "abc")


def test_the_line_of_a_node_is_a_function_of_its_geometry() -> None:
    geometry = Geometry(Nodes(1, 2), 4, "run.7", "10.0.0.1", 24711, "10.0.0.2", restarts=5, wait_s=90.0)
    line = words(Path("/state/job.json"), geometry)
    told = ["--nnodes=1:2", "--nproc-per-node=4", "--max-restarts=5", "--rdzv-id=run.7", "--local-addr=10.0.0.2"]
    assert set(told) < set(line)
    assert "--rdzv-endpoint=10.0.0.1:24711" in line
    assert any("join_timeout=90," in word for word in line)
    assert line[-3:] == ["-m", "eopipe.training.worker", "/state/job.json"]


def test_a_step_has_one_task_a_node_and_ends_when_its_nodes_must() -> None:
    fixed, free = srun(Nodes(2, 2), 4), srun(Nodes(1, 3), 1)
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=4", "--wait=30"} < set(fixed)
    assert {"--nodes=3", "--ntasks=3", "--no-kill", "--wait=0"} < set(free)


def test_a_port_that_is_taken_is_not_waited_for() -> None:
    with listen(LOOPBACK, 0) as taken:
        port = taken.getsockname()[1]
        with listen(LOOPBACK, port) as other:
            assert other.getsockname()[1] not in (0, port)
            assert other.getsockname()[0] == LOOPBACK


def test_the_first_node_of_many_listens_where_the_way_to_the_others_begins() -> None:
    assert own_address(Place(Nodes(1, 1), "a", host=LOOPBACK)) == LOOPBACK
    own = own_address(Place(Nodes(2, 2), "a", others=("nowhere.invalid",)))
    assert own == (way_to("192.0.2.1") or LOOPBACK)
    assert interface(own) in {name for _, name in socket.if_nameindex()}
    assert interface("127.0.0.1") == "lo"
    assert interface("203.0.113.9") == ""
    assert own_address(Place(Nodes(2, 2), "a", host="203.0.113.9")) == own, (
        "an address of another host is not listened on"
    )


def test_a_meeting_is_whole_private_and_known_by_its_group_and_token(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "meeting.json"
    assert read_meeting(path) is None
    meeting, listening = call(Place(Nodes(1, 1), "run", host=LOOPBACK), 3)
    meeting.write(path)
    assert read_meeting(path) == meeting
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["meeting.json"]
    assert (meeting.group, meeting.token, meeting.host) == ("run.3", 3, LOOPBACK)
    with listening:
        assert answers(meeting)
    assert not answers(meeting)
    other, socket_of_other = call(Place(Nodes(1, 1), "run", host=LOOPBACK), 3)
    socket_of_other.close()
    assert other.secret != meeting.secret
    path.write_text('{"group": "run"')
    assert read_meeting(path) is None


def test_only_signed_words_of_the_group_are_read() -> None:
    from torch.distributed import HashStore
    from torch.distributed.elastic.rendezvous import RendezvousStateError
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

    from eopipe.launch.rendezvous import Signed

    inner = C10dRendezvousBackend(HashStore(), "run")
    mine, other = Signed(inner, "secret"), Signed(inner, "guess")
    assert mine.get_state() is None
    found = mine.set_state(b"first")
    assert found is not None
    assert (found[0], found[2]) == (b"first", True)
    told = mine.get_state()
    assert told is not None
    assert told[0] == b"first"
    with pytest.raises(RendezvousStateError, match="somebody else wrote"):
        other.get_state()
    assert other.set_state(b"forged", told[1]) is not None
    with pytest.raises(RendezvousStateError, match="somebody else wrote"):
        mine.get_state()
