"""Four engines make the same bytes; the table of docs/cwl.md is from these runs."""

import re
from collections.abc import Callable

import pytest
from platforms import CWLTOOL, PAYLOAD, SNAKEMAKE, STREAMFLOW, TIMED, TOIL, TOIL_SLURM, Engine, Run
from projects import ROOT

RunBy = Callable[[Engine], Run]
PAGE = ROOT / "docs/cwl.md"
ROWS = re.compile(r"(?<=<!-- engines -->\n).*?(?=<!-- /engines -->)", re.DOTALL)


# `make test` compares cwltool with Snakemake in tests/workflow/test_cwl.py.
pytestmark = [pytest.mark.exhaustive, pytest.mark.same_bytes]


# An engine takes minutes: each is in a slice of its own, with the other test of its run.
def in_slice_of(engine: Engine) -> pytest.MarkDecorator:
    return pytest.mark.exhaustive(by=f"engine {engine.name}")


@pytest.mark.parametrize(
    "engine",
    [pytest.param(engine, id=engine.name, marks=in_slice_of(engine)) for engine in (CWLTOOL, TOIL, STREAMFLOW)],
)
def test_an_engine_makes_the_bytes_of_snakemake_also_where_it_was_killed_and_resumes(by: RunBy, engine: Engine) -> None:
    assert by(engine).digests == by(SNAKEMAKE).digests


@in_slice_of(CWLTOOL)
@pytest.mark.skipif(TIMED, reason="nothing is killed while times are measured")
def test_cwltool_resumes_from_its_cache(by: RunBy) -> None:
    log = (by(CWLTOOL).folder / "engine.log").read_text().rpartition(" Resolved ")[2]
    assert "[job search] Using cached output" in log
    assert "[job train] Using cached output" not in log


@in_slice_of(TOIL_SLURM)
@pytest.mark.usefixtures("slurm")
def test_toil_makes_the_same_bytes_through_the_jobs_of_slurm(by: RunBy) -> None:
    assert by(TOIL_SLURM).digests == by(SNAKEMAKE).digests


def table(runs: list[Run]) -> str:
    """A row for each engine; digests by their first twelve digits."""
    lines = [f"| engine | version | seconds | {' | '.join(PAYLOAD)} |", "|---|---|---|" + "---|" * len(PAYLOAD)]
    for run in runs:
        digests = " | ".join(f"`{run.digests[name][:12]}`" for name in PAYLOAD)
        lines.append(f"| {run.engine} | {run.version} | {run.seconds:.0f} | {digests} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_engines_is_of_these_engines_and_versions(by: RunBy) -> None:
    engines = (SNAKEMAKE, CWLTOOL, TOIL, STREAMFLOW)
    if TIMED:
        rows = table([by(engine) for engine in engines])
        PAGE.write_text(ROWS.sub(lambda _: rows, PAGE.read_text()))
    page_rows = ROWS.search(PAGE.read_text())
    assert page_rows
    head, _, *lines = page_rows[0].splitlines()
    assert head == table([]).splitlines()[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    # Seconds depend on the machine, and so may the last bit of a weight. That the bytes are equal other tests show: a
    # version needs no run.
    installed = [[engine.name, engine.version()] for engine in engines]
    assert [row[:2] for row in cells] == installed, "EOPIPE_WRITE_TABLE=1 make test-engines rewrites the table"
    columns = list(zip(*(row[3:] for row in cells), strict=True))
    assert [len(set(column)) for column in columns] == [1] * len(PAYLOAD)
