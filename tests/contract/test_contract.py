"""One definition, several views: command line, config, CWL, docs and rules say the same."""

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml
from cwl_utils.parser import load_document_by_uri
from hypothesis import given
from hypothesis import strategies as st

from dev import sync
from dev.cwl import needs_inputs
from dev.sync import derived
from eopipe import cli, needs
from eopipe.arguments import GROUPS, parser_of
from eopipe.config import check, load, model
from eopipe.contract import (
    STAGES,
    Argument,
    Input,
    Knob,
    Option,
    Output,
    Port,
    _port,
    function_name,
    is_path,
    stage,
    to_args,
)
from eopipe.errors import UsageError
from eopipe.run.rules import options

ROOT = Path(__file__).parents[2]
DEMO = yaml.safe_load((ROOT / "config/config.yaml").read_text())


def test_every_derived_file_is_what_the_stages_say() -> None:
    stale = [p.name for p, text in derived(ROOT).items() if not p.is_file() or p.read_text() != text]
    assert stale == [], "run `make sync`"


def test_a_stale_derived_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sync.main([]) == 0
    assert sync.main(["--check"]) == 0
    (tmp_path / "cwl/train.cwl").write_text("stale")
    assert sync.main(["--check"]) == 1


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_is_one_function_with_its_own_name_and_a_sentence(name: str) -> None:
    definition = stage(name)
    module = inspect.getmodule(definition.function)
    assert module is not None
    functions = [n for n, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    assert functions == [function_name(name)]
    assert definition.summary.endswith(".")
    assert definition.of(Output), "a stage has an output"


# What each stage needs beside its inputs, in words; a new stage has a row here, and perhaps needs none.
NEEDS: dict[str, list[str]] = {
    **{name: [] for name in ("import", "search", "fetch", "preprocess", "composite", "split", "predict", "evaluate")},
    **{name: [] for name in ("export", "report", "crate")},
    "catalog": ["Figures that a map has, where some are required of it."],
    "label": ["Labels of the dates of the scenes, and images of two dates for a change."],
    "train": [
        "A learning rate and a length at which a model trains.",
        "Validation places, where trials are compared or a training may stop early.",
    ],
    "choose": [
        "Validation places, where trials are compared or a training may stop early.",
        "A score of the task, where trials are ranked.",
        "Two members that differ.",
    ],
    "calibrate": ["Enough validation places to calibrate."],
    "estimate": ["A probability sample with labels, of a map of scenes."],
    "products": ["Products switched on, and zones with names in the area of the maps."],
}


def test_every_stage_says_what_it_needs_and_every_need_is_of_a_stage() -> None:
    modules = [sys.modules[stage(name).function.__module__] for name in STAGES]
    names = {name: getattr(module, "NEEDS", ()) for name, module in zip(STAGES, modules, strict=True)}
    in_words = {name: [inspect.getdoc(getattr(needs, need)) for need in of_stage] for name, of_stage in names.items()}
    assert in_words == {name: NEEDS[name] for name in STAGES}
    functions = {name for name, f in inspect.getmembers(needs, inspect.isfunction) if f.__module__ == needs.__name__}
    assert functions - {"unmet"} == {need for of_stage in names.values() for need in of_stage}


@pytest.mark.parametrize("name", STAGES)
def test_the_cwl_tool_has_the_ports_of_the_stage(name: str) -> None:
    tool = load_document_by_uri(ROOT / f"cwl/{name}.cwl")
    definition = stage(name)
    assert tool.baseCommand == ["eopipe", name]
    inputs = {i.id.rpartition("#")[2]: i for i in tool.inputs}
    # The settings of a trial take the place of options.
    assert len(inputs) == len(definition.ports) + len(needs_inputs(name)) + (name == "train")
    for port in definition.ports:
        entry = inputs[f"{port.name}_name" if isinstance(port.mark, Output) else port.name]
        if port.positional:
            assert (entry.inputBinding.prefix, entry.inputBinding.position) == (None, -1)
        elif entry.inputBinding:
            assert entry.inputBinding.prefix == port.flag
        else:
            assert port.flag in tool.arguments
        nullable = isinstance(entry.type_, list) and "null" in entry.type_
        assert nullable == port.optional
        if isinstance(port.mark, Option) and not port.required and port.default is not None:
            expected = list(port.default) if port.is_list else port.default
            assert entry.default == expected
    outputs = {o.id.rpartition("#")[2] for o in tool.outputs}
    assert outputs >= {p.name for p in definition.of(Output)} | {"record"}


def test_no_cwl_tool_can_run_a_shell_or_a_script() -> None:
    texts = {p.name: p.read_text() for p in (ROOT / "cwl").rglob("*.cwl")}
    for word in ("ShellCommandRequirement", "InlineJavascriptRequirement", "${"):
        assert word not in "".join(texts.values())
    # A platform needs the name of a container; there it is a hint, which tests/workflow/test_app_package.py checks.
    assert {name for name, text in texts.items() if "DockerRequirement" in text} == {"app-package.cwl"}


def test_the_demo_config_passes_its_own_schema() -> None:
    schema = json.loads((ROOT / "config/schema.json").read_text())
    jsonschema.validate(DEMO, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(DEMO | {"train": {"epocs": 3}}, schema)


@pytest.mark.parametrize("path", sorted((ROOT / "config/examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_settings_of_every_example_config_are_valid(path: Path) -> None:
    assert load(path)["results"].startswith("results/")


def changed(section: str, **values: Any) -> dict[str, Any]:
    return DEMO | {section: DEMO.get(section, {}) | values}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (changed("train", epocs=3), "train has no setting epocs; did you mean epochs?"),
        (changed("train", epochs="ten"), "train.epochs is 'ten'"),
        (changed("train", epochs=0), "train.epochs is 0"),
        (changed("split", method="randomly"), "split.method is 'randomly'"),
        (changed("split", method="temporal"), "split.method temporal needs split.dates"),
        (changed("split", method="group", by="region"), "split.by region needs split.regions"),
        (changed("split", allow=["overlap"]), "split.allow.0 is 'overlap'"),
        (DEMO | {"trian": {}}, "the config has no setting trian; did you mean train?"),
        (changed("preprocess", bands=["red", "swir16"]), "preprocess needs swir16, which search.assets does not"),
        (changed("label", classes=["a", "b", "c"]), "label.bins has 1 edges; 3 classes need 2"),
        (changed("label", bins=[], codes=[1]), "label.codes has 1 values for 2 classes"),
        (changed("label", bins=[], codes=[1, 1]), "2 classes need 2 different numbers in label.codes"),
        (changed("label", bins=[], codes=[0, 1], ignore=[0]), "which label.codes assigns to class non-forest"),
        (changed("label", bins=[], values=["forest=1", "non-forest=2"], ignore=[2]), "assigns to class non-forest"),
        (changed("label", bins=[], ignore=[0]), "but without label.codes 0 is class non-forest"),
        (changed("label", classes=["forest", "forest"]), "label.classes has forest twice"),
        (changed("label", classes=["a", "b", "c"], bins=[2, 1]), "label.bins 2, 1 do not increase"),
        (changed("label", resampling="mode"), "label.bins needs nearest, bilinear, cubic or average"),
        (changed("label", source="places.tsv"), "places.tsv is a text table, which is not read; give a vector file"),
        (changed("label", source="places.kml"), "places.kml is KML, which is not read"),
        (changed("label", source=None), "label needs exactly one of `source` (a file) and `asset` (of each scene)"),
        (changed("search", url="https://example.org"), "search needs exactly one of `catalog` (on disk) and `url`"),
        (
            changed("preprocess", shard=48),
            "preprocess.shard: the shard edge of 48 pixels is not a multiple of the chunk edge of 32",
        ),
        (changed("split", fractions=[0.9, 0.9, 0.1]), "split.fractions needs three numbers"),
        (changed("train", depth=5), "split.chip 16 cannot be halved 5 times (train.depth)"),
        (changed("report", colors=["#ff0000"]), "report.colors has 1 colours for 2 classes"),
        (changed("report", license="MIT"), "report has no setting license of its own; set crate.license"),
        (changed("catalog", license="MIT"), "catalog has no setting license of its own; set crate.license"),
        (changed("train", task="multilabel") | {"with_products": True}, "zones; set products.zones, a vector file of"),
        (DEMO | {"chip_set": "chips", "with_products": True}, "with_products is for maps of scenes, and chips of"),
        (
            DEMO | {"products": {"minimum_mapping_unit_ha": -1}},
            "products.minimum_mapping_unit_ha is -1: write at",
        ),
    ],
)
def test_a_mistake_in_the_config_is_one_clear_sentence(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(config)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_of_a_config_are_reported_at_once() -> None:
    config = changed("train", epocs=3) | {"split": DEMO["split"] | {"chipp": 8}}
    with pytest.raises(UsageError, match=r"epocs.*chipp|chipp.*epocs"):
        check(config)


def test_a_config_file_that_is_not_yaml_is_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: [")
    assert cli.main(["check", str(path)]) == 2
    path.write_text("!!python/object/apply:os.system ['true']")
    assert cli.main(["check", str(path)]) == 2
    assert "Traceback" not in capsys.readouterr().err


SETTINGS = [
    (name, port) for name in STAGES for port in stage(name).settings if port in stage(name).ports and not is_path(port)
]


@given(st.sampled_from(SETTINGS), st.data())
def test_the_command_line_gives_back_every_value(setting: tuple[str, Port], data: st.DataObject) -> None:
    name, port = setting
    plain = st.text("abcXYZ09_.:/ ;$'\"", min_size=1).filter(lambda t: not t.startswith("-"))
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(0, 10**6),
        float: st.floats(-1e6, 1e6).map(lambda v: round(v, 3)),
        str: plain,
        bool: st.booleans(),
    }
    values = st.sampled_from(port.choices) if port.choices else kinds[port.base]
    value = data.draw(st.lists(values, min_size=1, max_size=3).map(tuple) if port.is_list else values)
    required = [
        argument
        for p in stage(name).ports
        if p.required
        for argument in (["x"] if getattr(p.mark, "positional", False) else [p.flag, "x"])
    ]
    parsed = vars(parser_of(stage(name), {}).parse_args([*required, *to_args(port, value)]))[port.name]
    if port.base is bool:
        assert parsed == value
    else:
        assert parsed == ([str(v) for v in value] if port.is_list else str(value))


def test_a_switch_that_is_on_by_default_is_refused() -> None:
    # A CWL boolean could never switch it off.
    with pytest.raises(TypeError, match="off by default"):
        _port("fast", Annotated[bool, Knob("speed")], True)


def test_help_loads_nothing_heavy() -> None:
    # That is why it answers in a twentieth of a second.
    heavy = "{'numpy', 'torch', 'rasterio', 'zarr', 'pydantic', 'xarray', 'yaml', 'requests', 'sklearn', 'matplotlib'}"
    code = f"import sys; from eopipe.cli import main; main(['--help']); print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_stages_that_the_linter_keeps_free_of_torch_do_not_load_it() -> None:
    # The linter ignores an import for annotations, which could become one of the running program.
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (modules,) = (row["source_modules"] for row in linter["contracts"] if row.get("forbidden_modules") == ["torch"])
    assert "eopipe.stages.evaluate" in modules
    trees = [ast.parse(Path(ROOT, *name.split(".")).with_suffix(".py").read_text()) for name in modules]
    loaded = {node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    code = f"import sys; [__import__(name) for name in {sorted(loaded)}]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n"


def test_a_reader_that_closes_the_pipe_ends_the_help_silently() -> None:
    command = f"{shlex.quote(sys.executable)} -m eopipe --help | true; exit ${{PIPESTATUS[0]}}"
    for _ in range(5):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode in (0, 141), done.stderr) == (True, "")


def test_help_names_every_stage_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(stage(name).summary in text for name in STAGES)


@pytest.mark.parametrize("name", STAGES)
def test_the_help_of_a_stage_explains_every_port(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert all(port.flag in text for port in stage(name).ports)


def help_groups(name: str, columns: int, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The text of each group of a stage's help, by title."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns
    parts = re.split(r"^([a-z].*):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", STAGES)
def test_the_help_of_a_stage_has_its_ports_in_groups_and_advanced_ones_last(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = help_groups(name, 100, capsys)
    assert [title for title in GROUPS.values() if title in groups] == list(groups)[:-1]
    assert list(groups)[-1] == "help"
    for port in stage(name).ports:
        advanced = isinstance(port.mark, Option) and port.mark.advanced
        group = groups[GROUPS[type(port.mark), advanced]]
        entry = re.search(rf"^  {port.flag}\b.*\n(?:   .*\n)*", group, re.MULTILINE)
        assert entry, port.flag
        assert ("(required)" in entry[0]) == port.required
        # A line may break behind a hyphen.
        assert all(choice in "".join(entry[0].split()) for choice in port.choices)
        if port.base in (int, float) and port.default and not port.required and not port.is_list:
            assert f"[{port.default}]" in entry[0]


def test_help_is_wrapped_to_the_width_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    narrow_help, wide_help = (help_groups("train", columns, capsys) for columns in (72, 160))
    assert sum(len(text.splitlines()) for text in narrow_help.values()) > sum(
        len(t.splitlines()) for t in wide_help.values()
    )


@pytest.mark.parametrize("name", [name for group in cli.COMMANDS.values() for name in group if name != cli.PASSED_ON])
def test_the_help_of_every_command_beside_the_stages_has_its_arguments(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for word, definition in cli.definitions(name).items():
        assert definition.summary.endswith("."), definition.name
        with pytest.raises(SystemExit, match="0"):
            cli.main([name, *([word] if word else []), "--help"])
        text = " ".join(capsys.readouterr().out.split())
        for port in definition.ports:
            assert isinstance(port.mark, Argument | Input)
            # The arguments of a stage are behind its own help.
            named = f"eopipe {port.mark.stage} --help" if getattr(port.mark, "stage", "") else port.flag
            assert named in text


def test_two_arguments_of_one_meaning_keep_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    # `profile slurm` has the same name as an option.
    assert Argument("name of the profile") != Argument("name of the profile", positional=True)
    assert cli.main(["profile", "check", "nowhere"]) == 2
    assert "nowhere" in (error := capsys.readouterr().err)
    assert "unrecognized" not in error


def test_every_command_of_the_table_has_a_sentence() -> None:
    assert all(sentence.endswith(".") for group in cli.COMMANDS.values() for _, sentence in group.values())


def test_a_command_below_another_is_named_where_it_is_missing_or_misspelt(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tiles"]) == 0
    assert "tiles export" in capsys.readouterr().out
    assert cli.main(["tiles", "exprot", "labels.zarr"]) == 2
    assert capsys.readouterr().err == "error: there is no command tiles exprot; did you mean export?\n"
    assert cli.main(["profile", "sge"]) == 2
    assert "there are slurm, htcondor, kubernetes, lsf, pbs, check" in capsys.readouterr().err


def test_report_without_inputs_names_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report"]) == 2
    assert "required: --model, --classes" in capsys.readouterr().err


def test_a_misspelt_command_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err


def test_all_missing_inputs_are_named_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["preprocess", "--scene", tmp_path / "a", "--grid", tmp_path / "b", "--tiles", tmp_path / "t.zarr"]
    assert cli.main([str(argument) for argument in arguments]) == 3
    message = capsys.readouterr().err
    assert "--scene" in message
    assert "--grid" in message


def test_user_inputs_are_settings_and_the_rest_is_not() -> None:
    sections = model().model_fields
    general = {"results", "state", "chip_set", "model", "calibration", "allow_code", "folds", "trials", "members"} | {
        "map_parts"
    }
    assert set(sections) == general | {"online_nodes", "max_minutes", "with_products", "setup", "container", *STAGES}
    names = {p.name for p in stage("label").settings if isinstance(p.mark, Input)}
    assert names == {"before", "source"}


def test_one_licence_of_the_config_goes_to_every_stage_that_states_one() -> None:
    config = check(changed("crate", license="CC-BY-4.0"))
    stating = [name for name in STAGES if any(port.name == "license" for port in stage(name).ports)]
    assert stating == ["report", "catalog", "crate"]
    assert all("--license CC-BY-4.0" in options(config, name) for name in stating)
    assert all("--license ''" in options(check(DEMO), name) for name in stating), "by default none is stated"
    defaults = {port.default for name in stating for port in stage(name).ports if port.name == "license"}
    assert defaults == {""}, "no default grants rights"


def test_the_colours_of_the_report_are_those_of_the_map() -> None:
    config = check(changed("report", colors=["#ff0000", "#00ff00"]))
    assert "--colors '#ff0000' '#00ff00'" in options(config, "predict")
    assert "--colors" not in options(check(DEMO), "predict")


def test_a_port_that_may_be_none_is_none_by_default() -> None:
    # A command line can omit an option; it cannot pass None.
    with pytest.raises(TypeError, match="None must be its default"):
        _port("mask", Annotated[str | None, Option("asset")], "scl")


def test_a_list_with_a_default_cannot_be_emptied() -> None:
    with pytest.raises(UsageError, match=r"preprocess.bands is \[\]"):
        check(changed("preprocess", bands=[]))


def test_the_picture_of_the_readme_has_the_stages_of_a_training_run() -> None:
    text = (ROOT / "README.md").read_text().partition("flowchart LR\n")[2].partition("```")[0]
    edges = [pair for line in text.splitlines() for pair in pairwise(line.split(" --> "))]
    names = {name.strip() for edge in edges for name in edge}
    # import makes a chip set; choose makes one model of several; estimate needs a labelled sample.
    assert names == set(STAGES) - {"import", "choose", "estimate"}
