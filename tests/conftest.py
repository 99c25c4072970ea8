"""Fixtures of many tests: scenes, a web server, the command line."""

import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from unittest.mock import patch

import durations
import pytest
import slices
import warm
from hypothesis import settings
from loopback import Loopback
from scenery import Catalog, Completed, Fetch, Preprocess, Run, Search

from eopipe.cli import main

# As stages do, before torch is loaded: OpenMP threads that spin slow down the tests beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Snakemake loads all its executors, and HTCondor's warns where there is no pool.
os.environ.setdefault("CONDOR_CONFIG", os.devnull)
settings.register_profile("eopipe", deadline=None, derandomize=True)
settings.load_profile("eopipe")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore deprecations of other packages: rasterio and odc-geo (affine), planetary-computer (pydantic)."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # Under nohup or in the background they are ignored, and would be in each process that a test starts; a handler
        # is not inherited.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    warm.open_session()
    if durations.FOLDER in os.environ:
        config.pluginmanager.register(durations.Recorder())
    config.addinivalue_line("filterwarnings", "ignore:Use .@. matmul:PendingDeprecationWarning")
    config.addinivalue_line("filterwarnings", "ignore:Support for class-based .config. is deprecated")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The selection of the tests with the mark `exhaustive`."""
    parser.addoption("--exhaustive", choices=("all", "none", *slices.SLICES), default="all", help="all, or one slice")
    parser.addoption("--also", type=Path, help="a file with names of exhaustive tests that run beside the slice")


# First: tests that are not selected start nothing.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is run by hand, which is no skip, and exhaustive tests that are not selected."""
    chosen, also = config.getoption("exhaustive"), config.getoption("also")
    near = set(also.read_text().split()) if also else set()
    left_out = [item for item in items if not _is_selected(item, chosen, near)]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def _is_selected(item: pytest.Item, chosen: str, near: set[str]) -> bool:
    if item.get_closest_marker("by_hand"):
        return bool(os.environ.get("EOPIPE_REBUILD_SAMPLE"))
    mark = item.get_closest_marker("exhaustive")
    if mark is None or chosen == "all" or durations.test_name(item.nodeid) in near:
        return True
    return chosen != "none" and slices.is_in(slices.key_of(item.nodeid, mark), chosen)


def pytest_unconfigure() -> None:
    """End what this session started."""
    warm.close_session()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With EOPIPE_NO_SKIP a skip is a failure; only the shared data may be absent."""
    report = yield
    reason = str(call.excinfo.value) if report.skipped and call.excinfo else ""
    if reason and os.environ.get("EOPIPE_NO_SKIP") and "shared" not in reason:
        report.outcome, report.longrepr = "failed", f"skipped, and here nothing may be: {reason}"
    return report


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Undo what a command did to the log, which the next test may read."""
    logger = logging.getLogger("eopipe")
    level, handlers, propagate = logger.level, logger.handlers[:], logger.propagate
    yield
    logger.setLevel(level)
    logger.handlers[:], logger.propagate = handlers, propagate


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one eopipe command in this process."""

    def command(*arguments: object) -> Completed:
        capsys.readouterr()
        # A stage sets variables of its process.
        with patch.dict(os.environ):
            code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Completed(code, printed.err, printed.out)

    return command


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """An empty catalog to add scenes to."""
    return Catalog(tmp_path / "catalog")


@pytest.fixture
def three(catalog: Catalog) -> Catalog:
    """Three scenes that differ in date and clouds."""
    for name, day, cloud in (("b", "2023-08-01", 5.0), ("a", "2023-08-02", 50.0), ("c", "2023-09-01", 90.0)):
        catalog.add(name, properties={"datetime": f"{day}T10:00:00.024Z", "eo:cloud_cover": cloud})
    return catalog


@pytest.fixture
def fetch(run: Run, tmp_path: Path) -> Fetch:
    """Fetch a scene into the test's folder."""
    return Fetch(run, tmp_path)


@pytest.fixture
def search(run: Run, tmp_path: Path) -> Search:
    """Search, and freeze the scenes in a folder beside what the test has."""
    return Search(run, tmp_path / "out")


@pytest.fixture
def preprocess(run: Run, catalog: Catalog) -> Preprocess:
    """Preprocess the scenes of the catalog."""
    return Preprocess(run, catalog)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Loopback]:
    """A server of the test's folder."""
    with Loopback(tmp_path) as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let retries not wait; return the seconds that they would have waited."""
    waits: list[float] = []
    monkeypatch.setattr("eopipe.fetch.retry.Clock.wait", lambda clock, seconds, stop: waits.append(seconds))
    return waits


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount file systems with very little space."""
    mounted = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk needs root")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)
