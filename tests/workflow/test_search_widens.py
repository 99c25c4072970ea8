"""After a search that finds more scenes only the new ones are fetched; a completed search is not repeated."""

from pathlib import Path

import pytest
from loopback import Loopback
from projects import ROOT, Project

from eopipe.publish import digest


def fetched(project: Project) -> dict[str, int]:
    """The time of each fetched scene."""
    return {p.parent.name: p.stat().st_mtime_ns for p in project.results.glob("scenes/*/manifest.json")}


def make(project: Project, *arguments: str) -> None:
    result = project.run(*arguments)
    assert result.returncode == 0, result.stdout


def scenes(*days: str) -> list[str]:
    return [f"results/scenes/S2_ROMANIA_{day}/manifest.json" for day in days]


@pytest.mark.exhaustive
def test_wider_dates_fetch_only_what_is_new(project: Project) -> None:
    old, new = ("20180422", "20180701", "20180919"), "20190616"
    project.write(search={"datetime": "2018"})
    make(project, *scenes(*old))
    before = fetched(project)
    assert sorted(before) == [f"S2_ROMANIA_{day}" for day in old]
    project.write(search={"datetime": "2018/2019"})
    make(project, "--until", "search")
    assert project.planned(*scenes(*old, new)) == ["fetch"], "of four scenes one is new"
    make(project, *scenes(*old, new))
    after = fetched(project)
    assert sorted(after.keys() - before.keys()) == [f"S2_ROMANIA_{new}"]
    assert {name: after[name] for name in before} == before


@pytest.mark.exhaustive
def test_a_catalog_that_is_not_reachable_does_not_change_the_frozen_list(project: Project, tmp_path: Path) -> None:
    with Loopback(ROOT) as web:
        project.write(search={"catalog": None, "url": f"{web.url}/sample/catalog.json"})
        make(project, "--until", "search")
    before = digest(project.results / "items")
    assert "search" not in project.planned(*scenes("20180422"))
    make(project, "--until", "search")
    assert digest(project.results / "items") == before
