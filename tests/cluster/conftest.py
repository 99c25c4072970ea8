"""A real Slurm, started once for the tests of this folder."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_project import ClusterProject, copy_project, prepare, train_without_slurm
from journeys import CONCURRENT, JOURNEYS, start_journeys
from projects import Project

from slurm import FOR_ACCOUNTING, Cluster, missing_requirement

REPORT_LINES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes without accounting."""
    if reason := missing_requirement():
        pytest.skip(reason)
    cluster = Cluster()
    cluster.start(os.getpid())
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def accounted(cluster: Cluster) -> Iterator[Cluster]:
    """Two nodes with accounting, instead of the four without."""
    if reason := missing_requirement(*FOR_ACCOUNTING):
        pytest.skip(reason)
    cluster.stop()
    with_accounts = Cluster(nodes=2, accounting=True)
    try:
        with_accounts.start(os.getpid())
        yield with_accounts
    finally:
        with_accounts.stop()
        cluster.start(os.getpid())


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has run up to its split; tests copy it."""
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def undisturbed(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights that every training must end with: those of four processes on one machine."""
    return train_without_slurm(copy_project(prepared, tmp_path_factory.mktemp("alone") / "project"))


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines that are printed after the tests."""
    return request.config.stash.setdefault(REPORT_LINES, [])


@pytest.fixture(scope="session")
def journeys(
    cluster: Cluster, prepared: Project, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[ClusterProject]"]]:
    """All trainings with their faults, run concurrently; each with its recorded faults and its weights."""
    folder = tmp_path_factory.mktemp("journeys")
    projects = {name: copy_project(prepared, folder / name.replace(" ", "-")) for name in JOURNEYS}
    with ThreadPoolExecutor(CONCURRENT) as pool:
        yield start_journeys(pool, cluster, projects)
    for training in projects.values():
        training.kill_all()


# Last, when the tests that are not selected are gone: without one on journeys none is started.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Journeys take minutes: tests that need the cluster alone run before, others meanwhile, those on journeys last."""
    folder = Path(__file__).parent
    of_cluster = sorted((item for item in items if folder in item.path.parents), key=_order)
    items[:] = [item for item in items if folder not in item.path.parents] + of_cluster
    if any("journeys" in _fixtures(item) for item in of_cluster):
        for item in of_cluster:
            if _order(item) == 1:
                _fixtures(item).insert(0, "journeys")


def _order(item: pytest.Item) -> int:
    if item.get_closest_marker("alone"):
        return 0
    return 2 if "journeys" in _fixtures(item) else 1


def _fixtures(item: pytest.Item) -> list[str]:
    """The names of the fixtures of a test."""
    names: list[str] = getattr(item, "fixturenames", [])
    return names


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the measurements."""
    for line in config.stash.get(REPORT_LINES, []):
        terminalreporter.write_line(line)
