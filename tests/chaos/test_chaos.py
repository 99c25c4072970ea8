"""Random kills anywhere in a run: the same command ends with the same bytes, and no process lives on."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from loopback import Loopback

from chaos.driver import Outcome, Reference, disturbed, undisturbed

pytestmark = pytest.mark.exhaustive


def report(outcome: Outcome, folder: Path) -> str:
    """The whole outcome and the end of the log; pytest shortens what it prints of an object."""
    log = (folder / "project/log").read_text(encoding="utf-8", errors="replace")
    return f"{json.dumps(asdict(outcome), indent=1)}\n{log[-20_000:]}"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """The server of all projects that fetch."""
    with Loopback(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture(scope="module")
def by_snakemake(tmp_path_factory: pytest.TempPathFactory, web: Loopback) -> Reference:
    return undisturbed("snakemake", tmp_path_factory.mktemp("chaos") / "undisturbed", web)


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_run_under_snakemake_that_is_killed_at_random_ends_with_the_same_bytes_and_leaves_no_process(
    seed: int, by_snakemake: Reference, web: Loopback, tmp_path: Path
) -> None:
    outcome = disturbed("snakemake", seed, tmp_path / "project", web, by_snakemake)
    assert outcome.disturbances
    assert outcome.is_identical, report(outcome, tmp_path)


@pytest.fixture(scope="module")
def by_cwltool(tmp_path_factory: pytest.TempPathFactory, web: Loopback) -> Reference:
    return undisturbed("cwltool", tmp_path_factory.mktemp("chaos-cwl") / "undisturbed", web)


@pytest.mark.parametrize("seed", [1])
def test_a_run_under_cwltool_that_is_killed_at_random_ends_with_the_same_bytes(
    seed: int, by_cwltool: Reference, web: Loopback, tmp_path: Path
) -> None:
    outcome = disturbed("cwltool", seed, tmp_path / "project", web, by_cwltool)
    assert outcome.disturbances
    assert outcome.is_identical, report(outcome, tmp_path)


# Seeds of one or two signals; that of the chip set aims at its import, which a fast machine may have ended by then.
@pytest.mark.parametrize(
    ("project", "seed"), [("chip-set", 17), ("two-zones", 2), ("zarr-assets", 1), ("trials", 3), ("members", 4)]
)
def test_imports_zones_zarr_arrays_trials_and_members_that_are_killed_end_with_the_same_bytes(
    project: str, seed: int, web: Loopback, tmp_path: Path
) -> None:
    outcome = disturbed(project, seed, tmp_path / "project", web, undisturbed(project, tmp_path / "undisturbed", web))
    assert outcome.disturbances
    assert outcome.is_identical, report(outcome, tmp_path)
