"""What the rule of the crate hears of the workflow: its content, and its pinned packages, but not where it lies."""

from pathlib import Path

import pytest

from eopipe.run.rules import about_run, digest_of


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workflow beside the project that is worked in."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "home/workflow/rules").mkdir(parents=True)
    for name in ("Snakefile", "workflow/rules/maps.smk", "constraints.txt"):
        (tmp_path / "home" / name).write_text(name)
    return tmp_path / "home"


@pytest.mark.parametrize("name", ["Snakefile", "workflow/rules/maps.smk"])
def test_a_change_of_any_rule_is_another_digest(workflow: Path, name: str) -> None:
    before = digest_of(workflow)
    assert digest_of(workflow) == before
    (workflow / name).write_text("other")
    assert digest_of(workflow) != before


def test_pinned_packages_are_those_of_the_project_or_else_those_of_the_workflow(workflow: Path) -> None:
    told = about_run([], workflow)
    assert told.endswith(' --lock "$EOPIPE_WORKFLOW"/constraints.txt')
    assert str(workflow) not in told
    Path("constraints.txt").write_text("torch==2.13.0\n")
    assert about_run([], workflow).endswith(" --lock constraints.txt")
    Path("constraints.txt").unlink()
    (workflow / "constraints.txt").unlink()
    assert "--lock" not in about_run([], workflow)
