"""A real Slurm, started once for the tests of this folder."""

import os
from collections.abc import Iterator

import pytest
from clustered import alone, copied, prepare
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Journeys take minutes: most tests come before, some while they last, those that look at their ends last."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    names = getattr(item, "fixturenames", ())
    if "journeys" in names:
        # They begin with the tests that make a training of their own.
        return 1 if "tmp_path" in names else 3
    return 2 if item.get_closest_marker("meanwhile") else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell what was measured."""
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)
