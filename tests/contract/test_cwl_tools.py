"""The metadata of every CWL document, and that a tool requests the resources of its rule."""

import inspect
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cwltool.load_tool import load_overrides

from dev.cwl import ATTEMPTS, MEGABYTES, SCENES
from dev.cwl_variants import WHOLE
from eopipe import __version__
from eopipe.config import check
from eopipe.contract import STAGES, Input, stage
from eopipe.run import rules

ROOT = Path(__file__).parents[2]
CWL = ROOT / "cwl"
TOOLS = {name: yaml.safe_load((CWL / f"{name}.cwl").read_text()) for name in STAGES}
WORKFLOWS = {
    Path(name).stem: yaml.safe_load((CWL / name).read_text())
    for name in (*WHOLE, "fold.cwl", "composites.cwl", "image-map.cwl")
}
SMALL_TOOLS = {
    name: yaml.safe_load((CWL / f"{name}.cwl").read_text()) for name in ("steps", "cells", "images", "periods")
}
ALL = TOOLS | WORKFLOWS | SMALL_TOOLS
DEMO = check(yaml.safe_load((ROOT / "config/config.yaml").read_text()), str(ROOT / "config/config.yaml"))
IRI = re.compile(r"(iana:[a-z]+/[\w.+-]+|edam:format_\d{4})")


def ports(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{side}.{name}": port for side in ("inputs", "outputs") for name, port in document[side].items()}


def is_file(port: dict[str, Any]) -> bool:
    kind = port["type"]
    return str(kind.get("items") if isinstance(kind, dict) else kind).startswith(("File", "['null', 'File'"))


@pytest.mark.parametrize("name", ALL)
def test_every_port_has_a_label_a_sentence_and_a_type(name: str) -> None:
    for port, definition in ports(ALL[name]).items():
        assert all(definition.get(key) for key in ("label", "doc", "type")), port


@pytest.mark.parametrize("name", ALL)
def test_every_document_has_label_sentence_intent_licence_and_authors_but_no_id(name: str) -> None:
    document = ALL[name]
    assert document["label"].startswith("eopipe")
    assert document["doc"].endswith(".")
    assert all(re.fullmatch(r"edam:operation_\d{4}", word) for word in document["intent"])
    assert document["s:license"] == "https://spdx.org/licenses/Apache-2.0"
    assert document["s:author"][0]["s:name"]
    assert "id" not in document


@pytest.mark.parametrize("name", ALL)
def test_every_file_that_is_made_has_a_format_of_iana_or_edam(name: str) -> None:
    files = {port: output for port, output in ALL[name]["outputs"].items() if is_file(output)}
    assert [port for port, output in files.items() if not IRI.fullmatch(output.get("format", ""))] == []


@pytest.mark.parametrize("name", STAGES)
def test_every_file_that_comes_from_another_stage_has_the_format_that_it_was_made_in(name: str) -> None:
    # A user's own file may have one of several formats, and so may the two kinds of main workflow file.
    inputs = [p for p in stage(name).of(Input) if not p.mark.user and not p.mark.folder and not p.mark.mixed]
    names = {p.name for p in inputs} - {"workflow"}
    assert {n for n in names if not IRI.fullmatch(TOOLS[name]["inputs"][n].get("format", ""))} == set()


@pytest.mark.parametrize("name", STAGES)
def test_a_tool_names_its_software_and_its_version_as_a_hint(name: str) -> None:
    package = TOOLS[name]["hints"]["SoftwareRequirement"]["packages"]["eopipe"]
    assert package["version"] == [__version__]
    assert package["specs"][0].startswith("https://")
    assert "SoftwareRequirement" not in TOOLS[name]["requirements"]


@pytest.mark.parametrize("name", STAGES)
def test_the_network_is_open_to_search_and_fetch_alone(name: str) -> None:
    assert TOOLS[name]["requirements"]["NetworkAccess"]["networkAccess"] is (name in ("search", "fetch"))


@pytest.mark.parametrize("name", STAGES)
def test_a_new_version_is_another_environment_so_that_caches_miss(name: str) -> None:
    assert TOOLS[name]["requirements"]["EnvVarRequirement"] == {"envDef": {"EOPIPE_VERSION": __version__}}


@pytest.mark.parametrize("name", STAGES)
def test_every_output_has_a_name_that_the_caller_can_give(name: str) -> None:
    document, ports_of_stage = TOOLS[name], {port.name: port for port in stage(name).ports}
    for output in (entry for name, entry in document["outputs"].items() if name != "checkpoints"):
        globs = output["outputBinding"]["glob"]
        # The run record lies beside the first output that is given.
        for glob in [globs] if isinstance(globs, str) else globs:
            name_input = re.match(r"\$\(inputs\.(\w+)_name\)", glob)
            assert name_input
            # One that a job may lack has a name only where it is asked for.
            kind = ["null", "string"] if ports_of_stage[name_input[1]].optional else "string"
            assert document["inputs"][f"{name_input[1]}_name"]["type"] == kind


def resources_of_rule(name: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The resources of a rule as Snakemake evaluates them; inputs have the size for which `dev.cwl` requests them."""
    patch.setattr(rules, "volume", lambda files: MEGABYTES)
    patch.setattr(rules, "folders", lambda files: [""] * SCENES)
    text = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    body = re.search(rf"^(?:rule|checkpoint) {name}:\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert body
    resources = re.search(r"^    resources:\n((?:        .*\n)+)", body[1], re.MULTILINE)
    threads = re.search(r"^    threads: (.+)$", body[1], re.MULTILINE)
    assert resources
    names: dict[str, Any] = {
        "eo": rules,
        "config": DEMO,
        "STATE": "",
        "TRAINING": "train",
        "machine": partial(rules.resources_for, DEMO),
    }
    names |= {"partial": partial, "has_job_arrays": lambda workflow: False, "workflow": None}
    exec("\n".join(re.findall(r"^[A-Z]+_MB = .+$", text, re.MULTILINE)), names)
    values: dict[str, Any] = eval(f"dict({resources[1]})", names)
    amount = eval(threads[1], names) if threads else 1
    # Of a scene that is not fetched yet.
    return values | {"threads": amount(None, SimpleNamespace(scene="")) if callable(amount) else amount}


def evaluate(formula: Any, attempt: int) -> int:
    """The value of a resource at an attempt."""
    values = {
        "wildcards": {},
        "input": SimpleNamespace(tiles=[], stores=[], scene="", probabilities=[], classes=[]),
        "attempt": attempt,
    }
    return int(formula(**{name: values[name] for name in inspect.signature(formula).parameters}))


@pytest.mark.parametrize("name", STAGES)
def test_a_tool_requests_the_memory_and_the_time_of_its_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resources, inputs = resources_of_rule(name, monkeypatch), TOOLS[name]["inputs"]
    assert inputs["mem_mb"]["default"] == evaluate(resources["mem_mb"], 1)
    assert inputs["timelimit_s"]["default"] == 60 * evaluate(resources["runtime"], ATTEMPTS)
    requirements = TOOLS[name]["requirements"]
    assert {requirements["ResourceRequirement"][key] for key in ("ramMin", "ramMax")} == {"$(inputs.mem_mb)"}
    assert requirements["ToolTimeLimit"]["timelimit"] == "$(inputs.timelimit_s)"
    step = (
        next(
            step
            for workflow in ("pipeline", "finished-model", "chip-set")
            for step in WORKFLOWS[workflow]["steps"].values()
            if step["run"] == f"{name}.cwl"
        )
        if (name != "composite")
        else WORKFLOWS["composites"]["steps"]["composite"]
    )
    assert {key: step["in"][key] for key in ("mem_mb", "timelimit_s")} == {
        key: f"{name}_{key}" for key in ("mem_mb", "timelimit_s")
    }


@pytest.mark.parametrize("name", STAGES)
def test_an_engine_tries_again_after_a_server_or_a_preemption_and_after_nothing_else(name: str) -> None:
    assert TOOLS[name]["temporaryFailCodes"] == [5, 75]
    assert TOOLS[name]["permanentFailCodes"] == [2, 3, 4, 6, 7, 8, 9, 70]


@pytest.mark.parametrize("name", STAGES)
def test_a_tool_requests_the_cores_of_its_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requirement = TOOLS[name]["requirements"]["ResourceRequirement"]
    threads = resources_of_rule(name, monkeypatch)["threads"]
    assert set(requirement) == {"coresMin", "coresMax", "ramMin", "ramMax"}
    if isinstance(requirement["coresMax"], int):
        # Snakemake gives a rule fewer threads if there are fewer cores; a minimum in CWL would stop the job.
        assert (requirement["coresMin"], requirement["coresMax"]) == (1, threads)
    else:
        # The CWL input has the name of the setting that the threads of the rule follow.
        setting = re.fullmatch(r"\$\(inputs\.(\w+)\)", requirement["coresMin"])
        assert setting
        assert requirement["coresMin"] == requirement["coresMax"]
        assert DEMO[name][setting[1]] == threads


def test_the_pipeline_scatters_over_scenes_cells_and_folds() -> None:
    steps = WORKFLOWS["pipeline"]["steps"]
    scattered = {name: step["scatter"] for name, step in steps.items() if "scatter" in step}
    assert scattered == {
        "fetch": "item",
        "preprocess": "scene",
        "label_scenes": "scene",
        "predict_parts": ["cell", "ending", "part"],
        "predict": ["cell", "ending"],
        "predict_images": ["image", "cell", "ending"],
        "rung_0": ["name", "settings"],
        "rung_1": ["name", "settings", "continued"],
        "rung_2": ["name", "settings", "continued"],
        "trials": ["name", "settings", "continued"],
        "members": ["name", "settings"],
        "cross_validate": "fold",
    }


def test_every_setting_of_a_config_is_an_input_with_the_default_of_the_stage() -> None:
    inputs = WORKFLOWS["chip-set"]["inputs"] | WORKFLOWS["pipeline"]["inputs"]
    settings = {f"{name}_{port.name}": port for name in STAGES for port in stage(name).settings}
    assert set(settings) - set(inputs) == set()
    for name, port in settings.items():
        expected = list(port.default) if port.is_list else port.default
        if name != "search_grid_assets":
            assert inputs[name].get("default") == expected, name


@pytest.mark.parametrize("name", ["pipeline", "chip-set", "finished-model"])
def test_every_input_of_a_pipeline_is_used(name: str) -> None:
    used = {
        word
        for step in WORKFLOWS[name]["steps"].values()
        for value in step["in"].values()
        for word in ([value] if isinstance(value, str) else value.get("source", []))
    }
    assert set(WORKFLOWS[name]["inputs"]) - used == set()


def test_a_finished_model_has_the_steps_of_the_pipeline_but_for_split_and_training() -> None:
    steps, whole = (WORKFLOWS[name]["steps"] for name in ("finished-model", "pipeline"))
    assert [*steps] == [
        *("steps", "search", "cells", "images", "fetch", "preprocess", "composite", "label", "label_scenes"),
        *("predict_parts", "predict", "predict_images", "evaluate", "estimate", "report", "products"),
        *("publish", "crate"),
    ]
    for name in ("search", "cells", "images", "fetch", "preprocess", "composite", "label", "label_scenes"):
        assert steps[name] == whole[name]
    assert (steps["predict"]["in"]["model"], steps["predict"]["in"]["calibration"]) == ("model", "calibration")
    assert {"model", "calibration", "report/page"} <= {*steps["crate"]["in"]["payload"]["source"]}


def test_labels_of_a_finished_model_are_made_where_the_job_has_some_and_then_test_the_map() -> None:
    workflow = WORKFLOWS["finished-model"]
    steps, outputs = workflow["steps"], workflow["outputs"]
    assert workflow["inputs"]["with_labels"]["default"] is False
    assert steps["steps"]["in"]["with_labels"] == "with_labels"
    assert WORKFLOWS["pipeline"]["steps"]["steps"]["in"]["with_labels"] == {"default": True}
    evaluate = steps["evaluate"]
    assert (evaluate["when"], evaluate["in"]["wanted"]) == ("$(inputs.wanted)", "with_labels")
    assert evaluate["in"]["tested_model"] == "model"
    assert "chips" not in evaluate["in"]
    assert outputs["metrics"]["type"] == ["null", "File"]
    for name in ("report", "publish"):
        assert steps[name]["in"]["metrics"] == "evaluate/metrics"
    assert "evaluate/metrics" in steps["crate"]["in"]["payload"]["source"]
    assert {"label/record", "evaluate/record"} <= {*steps["crate"]["in"]["records"]["source"]}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_one_of_several_is_never_picked_from_the_list_of_a_single_scattered_step(name: str) -> None:
    # An engine may take the elements of such a list for the sources: StreamFlow does, and fails where it is empty.
    steps = WORKFLOWS[name]["steps"]
    for step in steps.values():
        for value in step["in"].values():
            if isinstance(value, dict) and value.get("pickValue") in ("first_non_null", "the_only_non_null"):
                only, *others = value["source"]
                assert others or "scatter" not in steps[only.partition("/")[0]], value


def test_a_step_that_may_not_run_has_a_condition_of_the_settings_or_of_the_job() -> None:
    steps = WORKFLOWS["pipeline"]["steps"]
    optional = {name: step["in"]["wanted"] for name, step in steps.items() if step.get("when") == "$(inputs.wanted)"}
    assert optional == {
        "composite": "steps/composite",
        "train": "with_training",
        **{f"{name}_{n}": f"with_rung_{n}" for name in ("rung", "promote") for n in range(3)},
        "choose": "with_trials",
        "combine": "with_members",
        "label": "steps/label_file",
        "label_scenes": "steps/label_scenes",
        "predict": "steps/mosaic",
        "predict_parts": "steps/mosaic",
        "images": "steps/images",
        "predict_images": "steps/images",
        "estimate": "with_areas",
        "export": "with_onnx",
        "report": "with_report",
        "products": "with_products",
        "crate": "with_crate",
    }
    for port in WORKFLOWS["pipeline"]["outputs"].values():
        if isinstance(port["outputSource"], str) and port["outputSource"].partition("/")[0] in optional:
            assert "null" in port["type"]


@pytest.mark.parametrize(("file", "stages"), [("docker", STAGES), ("gpu", ("train", "calibrate", "predict"))])
def test_the_keys_of_an_override_file_are_tools(file: str, stages: tuple[str, ...]) -> None:
    # As cwltool and Toil resolve them: relative to the document that they run.
    overrides = load_overrides((CWL / f"overrides/{file}.yml").as_uri(), (CWL / "pipeline.cwl").as_uri())
    assert {override["overrideTarget"] for override in overrides} == {(CWL / f"{name}.cwl").as_uri() for name in stages}


@pytest.mark.parametrize(("file", "message"), [("docker", "Docker"), ("gpu", "CUDARequirement")])
def test_an_override_file_reaches_the_tool(file: str, message: str, tmp_path: Path) -> None:
    # With an empty PATH there are neither containers nor a GPU, and cwltool's message for that is expected.
    (tmp_path / "model").mkdir()
    (tmp_path / "job.yml").write_text("model: {class: Directory, path: model}\ntiles: []\n")
    cwltool = Path(sys.executable).with_name("cwltool")
    command = [cwltool, "--quiet", "--overrides", CWL / f"overrides/{file}.yml", CWL / "predict.cwl", "job.yml"]
    done = subprocess.run(
        [str(argument) for argument in command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode != 0
    assert message in done.stderr
