"""The rule of the crate depends on the content of the workflow and its pinned packages, but not on its path."""

from pathlib import Path

import pytest

from eopipe.run.rules import describe_run, digest_of


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workflow beside the project folder, which is the working folder."""
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


def test_pinned_packages_are_those_of_the_project_or_else_of_the_workflow(workflow: Path) -> None:
    options = describe_run([], workflow)
    assert options.endswith(' --lock "$EOPIPE_WORKFLOW"/constraints.txt')
    assert str(workflow) not in options
    Path("constraints.txt").write_text("torch==2.13.0\n")
    assert describe_run([], workflow).endswith(" --lock constraints.txt")
    Path("constraints.txt").unlink()
    (workflow / "constraints.txt").unlink()
    assert "--lock" not in describe_run([], workflow)
