"""What commands that are no stage replace: files of their own, and never one of the user; on a full disk nothing."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from builders import grid_of, write_labels, write_map, write_model
from scenery import Run

from eopipe import cli
from eopipe.clusters import profile_command
from eopipe.clusters.slurm import Node, Partition, Site
from eopipe.contract import Output, stage
from eopipe.errors import UsageError
from eopipe.inspection import compare_command
from eopipe.own_files import is_foreign, write_files
from eopipe.provenance.record import refuse_foreign_outputs
from eopipe.reporting.page import page_environment
from eopipe.reporting.scores import TextTable
from eopipe.telemetry.journal import Journal
from eopipe.text_files import write_json
from eopipe.tiles.layout import Layout
from eopipe.training_job import JOB

ROOT = Path(__file__).parents[2]
TRAINING = ("--tiles", "a", "--labels", "b", "--chips", "c", "--statistics", "d", "--model", "m")
PREDICT = ("--model", "m", "--tiles", "a", "--classes", "c.tif", "--probabilities", "p.tif")
PAGE, BLOCK = 4096, 1 << 16


@dataclass(frozen=True)
class Case:
    """A command line, in which `{}` is a folder to write into; what a second run of it says, and a full disk."""

    words: tuple[str, ...]
    again: int = 0
    full: int = 6

    def at(self, place: Path) -> list[str]:
        return [word.replace("{}", str(place)) for word in self.words]


# Of each command that writes, one line or more; its name is the first.
CASES = {
    "init": Case(("init", "{}", "--sample"), again=2),
    "init, an area": Case(("init", "{}", "--area", "area.geojson", "--catalog", "sample"), again=2),
    "init, a model": Case(("init", "{}", "--from", "model", "--catalog", "sample"), again=2),
    "plan": Case(("plan", "project", "--out", "{}")),
    "cwl": Case(("cwl", "project", "--to", "{}")),
    "profile slurm": Case(("profile", "slurm", "--name", "new"), again=2),
    **{f"profile {name}": Case(("profile", name, "--name", "new"), again=2) for name in profile_command.TEMPLATES},
    "condor": Case(("condor", "--folder", "{}", "--", *TRAINING)),
    "condor predict": Case(("condor", "predict", "--folder", "{}", "--parts", "2", "--", *PREDICT)),
    "condor trainings": Case(("condor", "trainings", "plan.txt", "--folder", "{}")),
    "compare": Case(("compare", "a", "b", "--page", "{}/page.html", "--json", "{}/scores.json")),
    "sample": Case(("sample", "map.tif", "--number", "40", "--minimum", "10", "--to", "{}"), again=2),
    "tiles export": Case(("tiles", "export", "a.zarr", "{}/a.tif")),
    # A training goes on without trackers: they are left out with a warning each.
    "follow": Case(("follow", "state", "--to", "prometheus", "--views", "{}", "--once"), full=2),
}
# Commands that write through others, or only where nothing is, with the test of it.
ELSEWHERE = {
    "run": ("unit/test_foreign_outputs.py", "would overwrite files that it did not write"),
    "verify": ("unit/test_foreign_outputs.py", "would overwrite files that it did not write"),
    "rerun": ("workflow/test_rerun_and_lineage.py", "exists already"),
}
# Jobs of the CWL pipeline among them, whose output is in the folder that the engine makes for each.
WRITE_NOTHING = {
    *("check", "command", "usage", "lineage", "completion", "tiles info", "tiles check", "profile check"),
    *("cwl steps", "cwl cells", "cwl images", "cwl periods"),
}


def every_command() -> Iterator[str]:
    for group in cli.COMMANDS.values():
        for name in group:
            words = [""] if name == cli.PASSED_ON else cli.definitions(name)
            yield from (f"{name} {word}".rstrip() for word in words)


def test_every_command_has_a_row() -> None:
    written = {name.partition(",")[0] for name in CASES}
    assert written | ELSEWHERE.keys() | WRITE_NOTHING == {*every_command()}
    assert len(written) + len(ELSEWHERE) + len(WRITE_NOTHING) == len([*every_command()])
    for path, sentence in ELSEWHERE.values():
        assert sentence in (ROOT / "tests" / path).read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    shutil.copy(ROOT / "sample/area.geojson", tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/sample").symlink_to(ROOT / "sample")
    shutil.copy(ROOT / "config/config.yaml", tmp_path / "project")
    for name in "abcd":
        (tmp_path / name).touch()
    (tmp_path / "plan.txt").write_text(f"Shell command: exec eopipe train {' '.join(TRAINING)}\n")
    write_model(tmp_path / "model", "segmentation", ("a", "b"), bands=("red", "green", "blue"), chip=16)
    write_labels(tmp_path / "a.zarr", np.ones((32, 32), np.uint8), ("land", "water"), layout=Layout(16, 32))
    write_map(tmp_path / "map.tif", np.eye(20, dtype=np.uint8)[None], grid_of((20, 20)), classes="0=land, 1=water")
    (tmp_path / "state").mkdir()
    job = {"settings": {}, "loss_weights": [], "target": [], "views": ""}
    (tmp_path / "state" / JOB).write_text(json.dumps(job))
    journal = Journal(tmp_path / "state", 0)
    journal.add("step", 1, loss=1.0)
    journal.close()
    batch = Partition("batch", True, 120, None, "OFF", True, (Node("n", 8, 9000, ()),))
    site = Site("hpc", "23.11.4", True, 300, (batch,), ("geo",))
    monkeypatch.setattr(profile_command, "query_site", lambda: site)
    finished = SimpleNamespace(data=None, settings={})
    monkeypatch.setattr(compare_command.FinishedResults, "at", lambda _: finished)
    results = {
        "compare_runs": SimpleNamespace(count=1, pieces=2, runs=[SimpleNamespace(json_document=dict)] * 2),
        "score_table": TextTable("", ("", "a", "b", ""), []),
        "read_panels": None,
        "render_comparison": "<title>a · eopipe comparison</title>" + "x" * PAGE,
    }
    for name, value in results.items():
        monkeypatch.setattr(compare_command, name, lambda *_, value=value: value)
    return tmp_path


@pytest.fixture
def at(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[Case, Path], tuple[int, str]]:
    """Run a command that writes to a place."""

    def command(case: Case, place: Path) -> tuple[int, str]:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(place))
        completed = run(*case.at(place.relative_to(Path.cwd())))
        return completed.code, completed.stderr + caplog.text

    return command


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", CASES)
def test_a_command_replaces_its_own_files_and_none_of_the_user(
    name: str, folder: Path, at: Callable[[Case, Path], tuple[int, str]]
) -> None:
    case, place = CASES[name], folder / "own"
    code, printed = at(case, place)
    assert code == 0, printed
    written = contents(place)
    assert at(case, place)[0] == case.again
    assert contents(place).keys() == written.keys()
    # All places but the config of a project, which is asked for first; then one alone.
    targets = sorted(path for path in written if path != "config.yaml") or ["config.yaml"]
    for number, chosen in enumerate((targets, targets[:1], targets[-1:])):
        of_user = {path: f"the only copy of {path}".encode() for path in chosen}
        other = folder / f"of-user-{number}"
        for path, text in of_user.items():
            (other / path).parent.mkdir(parents=True, exist_ok=True)
            (other / path).write_bytes(text)
        code, printed = at(case, other)
        assert code == 2, printed
        assert any(path in printed for path in (*chosen, str(Path(chosen[0]).parent)))
        assert contents(other) == of_user


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_a_full_disk_says_so_and_leaves_nothing(
    name: str, folder: Path, small_disk: Callable[[str], Path], at: Callable[[Case, Path], tuple[int, str]]
) -> None:
    case = CASES[name]
    assert at(case, folder / "enough")[0] == 0
    pages = sum(-(-len(content) // PAGE) for content in contents(folder / "enough").values())
    disk = small_disk(f"size={(pages - 1) * PAGE + BLOCK}")
    # All of it fits but the last page.
    (disk / "filler").write_bytes(b"x" * BLOCK)
    code, printed = at(case, disk / "place")
    assert code == case.full, printed
    assert "no space left" in printed.lower()
    assert "Traceback" not in printed
    assert contents(disk).keys() == {"filler"}


def test_files_that_nobody_has_changed_or_that_are_empty_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("text")
    (tmp_path / "empty").touch()
    write_files(tmp_path, {"same": "text", "empty": "text", "new": "#!/bin/sh\n"})
    assert {path.name for path in tmp_path.iterdir()} == {"same", "empty", "new"}
    assert (tmp_path / "new").stat().st_mode & 0o100


def test_files_of_others_in_a_folder_with_a_manifest_are_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/thesis.txt").write_text("years")
    with pytest.raises(UsageError, match=r"there is \S+thesis.txt, which eopipe did not write"):
        write_files(tmp_path, {"config.yaml": "text", "model/manifest.json": "{}"})
    assert contents(tmp_path) == {"model/thesis.txt": b"years"}


def test_a_link_that_leads_nowhere_and_a_folder_are_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(UsageError, match=f"{name}.*which eopipe did not write"):
            write_files(tmp_path, {name: "text"})
    assert {path.name for path in tmp_path.iterdir()} == {"link", "folder"}


def test_a_comparison_is_known_by_what_its_page_and_its_scores_begin_with(tmp_path: Path) -> None:
    page = page_environment().get_template("macros.html").make_module({"run": {"title": "a and b"}, "style": ""})
    (tmp_path / "page.html").write_text(str(page.head("eopipe comparison")))
    document = {"runs": [], "samples": 1, "pieces": 2, "settings": {}, "places": "test"}
    write_json(tmp_path / "scores.json", document)
    assert not is_foreign(tmp_path / "page.html", compare_command.PAGE_MARK)
    assert not is_foreign(tmp_path / "scores.json", *compare_command.JSON_MARKS)
    assert is_foreign(tmp_path / "page.html", *compare_command.JSON_MARKS)


@pytest.mark.parametrize("name", ["report", "choose"])
def test_a_stage_replaces_a_page_of_eopipe_and_no_other(name: str, tmp_path: Path) -> None:
    values = {port.name: tmp_path / port.name for port in stage(name).of(Output)}
    for text, is_refused in (("<title>My lab</title>", True), ("<title>a · eopipe report</title>", False)):
        values["page"].write_text(text)
        with pytest.raises(UsageError, match=r"did not write: --page \S+page; choose") if is_refused else nullcontext():
            refuse_foreign_outputs(stage(name), values)
