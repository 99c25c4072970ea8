"""Every test belongs to one group, and the recorded durations to tests that exist."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import slices

import eopipe
from dev import quick, revisions
from dev.imports import ROOT, imports, lazy_names
from dev.suites import SLICES, TESTS, file_seconds, fitting, groups

MODULES = {str(path.relative_to(TESTS)): path for path in TESTS.glob("*/test_*.py")}


@pytest.fixture(scope="module")
def reach() -> quick.Reach:
    return quick.Reach(imports())


@pytest.mark.parametrize("share", [0, 1 / len(SLICES), 1])
def test_every_test_module_is_in_one_group(share: float) -> None:
    rows = groups(file_seconds(share))
    assert len({group.name for group in rows}) == len(rows)
    for name in MODULES:
        # The cluster is a group of its own for tests that need all of it.
        holders = [group.name for group in rows if any(name == p or name.startswith(f"{p}/") for p in group.paths)]
        assert holders == (["cluster alone", "cluster"] if name.startswith("cluster/") else holders[:1]), name
        assert holders, name
    assert {path for group in rows for path in group.paths if path.endswith(".py")} <= set(MODULES)


def selected(*arguments: str, program: Sequence[str] = ("-m", "pytest")) -> list[str]:
    # The tests of the cluster take little to collect.
    line = [sys.executable, *program, "--collect-only", "-q", "-p", "no:cacheprovider", "tests/cluster", *arguments]
    listed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    return [name for name in listed if "::" in name]


# Each collection takes seconds, so one process prints what every selection has.
SELECTIONS = f"""
import sys
from pathlib import Path

import pytest

class Selections:
    def pytest_collection_finish(self, session):
        plugin = session.config.pluginmanager.get_plugin(str(Path("tests/conftest.py").resolve()))
        for chosen in {("all", "none", *SLICES)}:
            items, session.config.option.exhaustive = list(session.items), chosen
            plugin.pytest_collection_modifyitems(session.config, items)
            print(*("\\n%s\\t%s" % (chosen, item.nodeid) for item in items), sep="")

pytest.main(sys.argv[1:], [Selections()])
"""


def test_each_exhaustive_test_is_in_a_slice_and_every_other_test_in_all(tmp_path: Path) -> None:
    rows = [name.split("\t") for name in selected(program=("-c", SELECTIONS)) if "\t" in name]
    lists: dict[str, list[str]] = {selection: [] for selection in ("all", "none", *SLICES)}
    for selection, name in rows:
        lists[selection].append(name)
    every, none, *of_slices = lists.values()
    exhaustive = [name for names in of_slices for name in names if name not in none]
    assert len(exhaustive) > 5
    assert {*exhaustive, *none} == {*every}
    assert all(set(none) <= set(names) for names in of_slices)
    (tmp_path / "near").write_text(exhaustive[-1].partition("[")[0])
    number = next(number for number, names in enumerate(of_slices) if exhaustive[-1] not in names)
    assert selected(f"--exhaustive={number}") == of_slices[number]
    assert exhaustive[-1] in selected(f"--exhaustive={number}", f"--also={tmp_path / 'near'}")


def test_a_new_test_is_added_to_the_slice_with_the_fewest_seconds_and_no_other_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(slices.TABLE, "tests", {"a": [0], "gone": [1], "often": list(range(2, 24))})
    monkeypatch.setattr(slices, "SLICES", tuple(map(str, range(24))))
    tests = slices.with_new_tests({"a": 5.0, "often": 9.0, "long": 8.0, "short": 1.0})
    assert tests == {"a": [0], "often": list(range(2, 24)), "long": [1], "short": [0]}


def test_the_next_slice_is_the_one_that_has_waited_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(slices.TABLE, "runs", 9)
    monkeypatch.setitem(slices.TABLE, "last", [9, 7, 0, 8])
    assert slices.ages() == [0, 2, 10, 1]
    assert slices.oldest() == 2
    monkeypatch.setitem(slices.TABLE, "last", [9, 7, 10, 8])
    assert slices.oldest() == 1


def test_tests_that_read_every_file_of_the_package_run_with_any_change() -> None:
    texts = {f"tests/{name}": path.read_text() for name, path in MODULES.items()}
    readers = {name for name, text in texts.items() if re.search(r'"eopipe"\)\.rglob|"eopipe/\*\*', text)}
    assert readers == set(quick.READERS)


# What one would run by hand after a change of the module: `make quick` finds it through imports, through the text that
# names the module of a process, or through the modules that the processes of a test loaded.
@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("chips/splits", "unit/test_split.py"),
        ("composites/periods", "unit/test_composites.py"),
        ("inference/mosaic", "unit/test_maps.py"),
        # Used as `eopipe.open_cube` and the like.
        ("inspection/chip_dataset", "unit/test_chip_dataset.py"),
        ("inspection/cube", "unit/test_cube.py"),
        ("inspection/models", "unit/test_ensemble.py"),
        ("inspection/run_metrics", "unit/test_member_scores.py"),
        ("launch/lease", "unit/test_lease.py"),
        ("publish", "unit/test_publish.py"),
        ("scenes/masks", "unit/test_masks.py"),
        ("training/loop", "unit/test_train_step.py"),
        ("training/step", "unit/test_train_step.py"),
        ("warp/write_tiles", "unit/test_preprocess.py"),
        # Beside hundreds of tests that are as near.
        ("chips/assign", "unit/test_split.py"),
        ("chips/chip_table", "unit/test_split.py"),
        ("inference/map_files", "unit/test_ensemble_spread.py"),
        ("labels/vector_files", "unit/test_source_values.py"),
        ("tasks/segmentation", "unit/test_ensemble.py"),
    ],
)
def test_a_change_of_a_module_runs_the_tests_that_one_would_run_by_hand(
    reach: quick.Reach, module: str, test: str
) -> None:
    chosen, _, _ = quick.nearest(reach, [f"eopipe/{module}.py"])
    assert any(name.startswith(f"tests/{test}::") for name in chosen)
    table = quick.durations()
    assert all(table.is_quick(name) and table.seconds(name) <= quick.SLOW_S for name in chosen)
    assert sum(map(table.seconds, chosen)) <= quick.TESTS_S


def test_what_a_package_imports_when_it_is_used_reaches_the_tests_that_use_its_name(reach: quick.Reach) -> None:
    assert lazy_names() == {f"eopipe.{name}": module for name, module in eopipe.API.items()}
    for module in eopipe.API.values():
        steps = reach.distances([f"{module.replace('.', '/')}.py"])
        # Its programs are texts.
        assert any(name.startswith("tests/workflow/test_python_api.py::") and steps[name] == 1 for name in steps)


def test_the_first_test_of_each_file_that_is_a_step_away_comes_before_the_second_of_any() -> None:
    names = ["a::test_a", "a::test_b", "b::test_a", "c::test_a"]
    steps = dict(zip(names, (1, 1, 1, 2), strict=True))
    chosen = [name for name, _ in quick.by_turns(names, dict.fromkeys(names, 0.0), steps)]
    assert chosen == ["a::test_a", "b::test_a", "a::test_a", "b::test_a", "c::test_a", "a::test_b"]


MODEL = """'''Scores, as {writers}.'''
from pydantic import BaseModel

class Scores(BaseModel):
    accuracy: float
"""


@pytest.mark.parametrize(
    ("writers", "line", "revision", "stages"),
    [
        ("evaluate writes them", "kappa: float", 1, "the REVISION of evaluate,"),
        ("split writes them and evaluate writes them", "kappa: float", 1, "the REVISION of split and evaluate,"),
        ("evaluate writes them", "kappa: float", 2, ""),
        ("evaluate writes them", "# They are shares.", 1, ""),
        ("others write them", "kappa: float", 1, ""),
    ],
)
def test_another_field_of_a_document_names_the_stages_that_write_it_unless_one_has_another_revision(
    writers: str, line: str, revision: int, stages: str
) -> None:
    file, stage = "eopipe/scores.py", "eopipe/stages/evaluate.py"
    before = {file: MODEL.format(writers=writers), stage: "REVISION = 1\n"}
    after = {file: f"{before[file]}    {line}\n", stage: f"REVISION = {revision}\n"}
    sentences = [
        *revisions.warnings(
            [file, stage, "README.md"], lambda name: before.get(name, ""), lambda name: after.get(name, "")
        )
    ]
    assert [stages in sentence and "Scores.kappa" in sentence for sentence in sentences] == [True] * bool(stages)


def test_modules_of_documents_say_which_stages_write_them() -> None:
    texts = map(quick.text_of_file, quick.git("ls-files", "eopipe/*.py"))
    stages = {stage for text in texts if revisions.fields(text) for stage in revisions.writers(text)}
    assert stages == {"search", "split", "choose", "calibrate", "evaluate"}


def test_a_fixture_that_a_test_asks_for_by_name_is_one_that_it_uses(reach: quick.Reach) -> None:
    fixtures = reach.uses["tests/workflow/test_competency_questions.py::ask"]
    assert {"tests/workflow/conftest.py::by_cwl", "tests/workflow/conftest.py::finished"} <= fixtures
    marked = "tests/unit/test_executor_patches.py::test_the_queries_of_the_executor_are_replaced_once"
    assert "tests/unit/test_executor_patches.py::restored" in reach.uses[marked]


def test_a_rare_word_of_the_changed_lines_brings_the_tests_that_have_it_forward(reach: quick.Reach) -> None:
    lines = ["        np.any(image >= self.recipe.saturated"]
    name = "tests/unit/test_masks.py::test_saturated_pixels_are_not_usable_and_counted"
    chosen, _, _ = quick.nearest(reach, ["eopipe/warp/write_tiles.py"], lines)
    assert name in chosen
    others, _, _ = quick.nearest(reach, ["eopipe/warp/write_tiles.py"])
    assert name not in others or chosen.index(name) < others.index(name)


def test_what_no_test_has_recorded_is_not_quick() -> None:
    reach = quick.Reach({"tests/unit/test_lease.py::test_that_is_new": {"eopipe.launch.lease"}})
    # What recorded tests start is not the subject.
    reach.loaded.clear()
    chosen, reached, unknown = quick.nearest(reach, ["eopipe/launch/lease.py"])
    assert (chosen, reached, unknown) == ([], 1, 1)


def test_near_tests_fit_with_the_fixtures_of_their_files_and_none_waits_for_a_cluster() -> None:
    names = [
        f"tests/{test}" for test in ("cluster/test_a.py::test_a", "unit/test_b.py::test_b", "unit/test_b.py::test_c")
    ]
    others = ["tests/unit/test_d.py::test_d", "tests/unit/test_e.py::test_e"]
    tests = dict.fromkeys(names + others, (1.0, 1.0, 1.0, 1.0))
    fixtures = {"tests/unit/test_b.py::made": (8.0, 1.0), "tests/unit/test_d.py::made": (9.0, 1.0)}
    table = quick.Durations(tests, fixtures, [], {})
    assert fitting([*names, *others], table, 11.5) == [*names[1:], others[1]]
