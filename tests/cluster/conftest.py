"""A real Slurm, started once for the tests of this folder."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from clustered import Clustered, alone, copied, prepare
from journeys import AT_A_TIME, JOURNEYS, set_out
from projects import Project

from slurm import FOR_ACCOUNTING, Cluster, lacking

TOLD = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes without accounting."""
    if reason := lacking():
        pytest.skip(reason)
    made = Cluster()
    made.start(os.getpid())
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def accounted(cluster: Cluster) -> Iterator[Cluster]:
    """Two nodes with accounts, in the place of the four without."""
    if reason := lacking(*FOR_ACCOUNTING):
        pytest.skip(reason)
    cluster.stop()
    made = Cluster(nodes=2, accounting=True)
    try:
        made.start(os.getpid())
        yield made
    finally:
        made.stop()
        cluster.start(os.getpid())


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is made up to its split; tests copy it."""
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def undisturbed(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights that all must end with: of one machine with four processes."""
    return alone(copied(prepared, tmp_path_factory.mktemp("alone") / "project"))


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are told after the tests."""
    return request.config.stash.setdefault(TOLD, [])


@pytest.fixture(scope="session")
def journeys(
    cluster: Cluster, prepared: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[Clustered]"]]:
    """All that is done to the trainings; what they went through and what they ended with."""
    folder = tmp_path_factory.mktemp("journeys")
    made = {name: copied(prepared, folder / name.replace(" ", "-")) for name in JOURNEYS}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield set_out(pool, cluster, made)
    for travelling in made.values():
        travelling.leave()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Journeys take minutes: tests that want the cluster alone come before, others while they last, their ends last."""
    items.sort(key=_turn)
    if any("journeys" in _fixtures(item) for item in items):
        for item in items:
            if _turn(item) == 1:
                _fixtures(item).insert(0, "journeys")


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return 0
    return 2 if "journeys" in _fixtures(item) else 1


def _fixtures(item: pytest.Item) -> list[str]:
    """Names of those that a test needs."""
    needs: list[str] = getattr(item, "fixturenames", [])
    return needs


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell what was measured."""
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)
