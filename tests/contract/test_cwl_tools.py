"""What every CWL document says of itself, sentence by sentence, and that it asks for what its rule asks for."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from cwltool.load_tool import load_overrides

from dev.cwl import MEGABYTES, SCENES, TRIES
from eopipe import __version__
from eopipe.config import check
from eopipe.contract import STAGES, Input, stage

ROOT = Path(__file__).parents[2]
CWL = ROOT / "cwl"
TOOLS = {name: yaml.safe_load((CWL / f"{name}.cwl").read_text()) for name in STAGES}
WORKFLOWS = {name: yaml.safe_load((CWL / f"{name}.cwl").read_text()) for name in ("pipeline", "fold")}
ALL = TOOLS | WORKFLOWS
DEMO = check(yaml.safe_load((ROOT / "config/config.yaml").read_text()), str(ROOT / "config/config.yaml"))
IRI = re.compile(r"(iana:[a-z]+/[\w.+-]+|edam:format_\d{4})")


def ports(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{side}.{name}": port for side in ("inputs", "outputs") for name, port in document[side].items()}


def is_file(port: dict[str, Any]) -> bool:
    kind = port["type"]
    return str(kind.get("items") if isinstance(kind, dict) else kind).startswith(("File", "['null', 'File'"))


@pytest.mark.parametrize("name", ALL)
def test_every_port_has_a_label_a_sentence_and_a_type(name: str) -> None:
    for port, told in ports(ALL[name]).items():
        assert all(told.get(word) for word in ("label", "doc", "type")), port


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
    files = {port: told for port, told in ALL[name]["outputs"].items() if is_file(told)}
    assert [port for port, told in files.items() if not IRI.fullmatch(told.get("format", ""))] == []


@pytest.mark.parametrize("name", STAGES)
def test_every_file_that_comes_from_another_stage_has_the_format_that_it_was_made_in(name: str) -> None:
    # A user's own file may have one of several formats, and so may the two kinds of main workflow file.
    mine = [p for p in stage(name).of(Input) if not p.mark.user and not p.mark.folder and not p.mark.mixed]
    wanted = {p.name for p in mine} - {"workflow"}
    assert {n for n in wanted if not IRI.fullmatch(TOOLS[name]["inputs"][n].get("format", ""))} == set()


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
    document = TOOLS[name]
    for told in document["outputs"].values():
        asked = re.match(r"\$\(inputs\.(\w+_name)\)", told["outputBinding"]["glob"])
        assert asked
        assert document["inputs"][asked[1]]["type"] == "string"


def rule(name: str) -> dict[str, Any]:
    """The resources of a rule as Snakemake evaluates them: sizes of inputs are those of `dev.cwl`."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))
    found = re.search(rf"^(?:rule|checkpoint) {name}:\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert found
    block = re.search(r"^    resources:\n((?:        .*\n)+)", found[1], re.MULTILINE)
    threads = re.search(r"^    threads: (.+)$", found[1], re.MULTILINE)
    assert block
    eo = SimpleNamespace(volume=lambda files: MEGABYTES, folders=lambda files: [""] * SCENES)
    names = {"eo": eo, "config": DEMO, "STATE": "", "knobs": lambda *words, **more: ""}
    made: dict[str, Any] = eval(f"dict({block[1]})", names)
    return made | {"threads": eval(threads[1], names) if threads else 1}


def at(formula: Any, attempt: int) -> int:
    given = {"wildcards": None, "input": SimpleNamespace(tiles=[], scene=""), "attempt": attempt}
    return int(formula(**{word: given[word] for word in inspect.signature(formula).parameters}))


@pytest.mark.parametrize("name", STAGES)
def test_a_tool_asks_for_the_memory_and_the_time_of_its_rule(name: str) -> None:
    asked, requirements = rule(name), TOOLS[name]["requirements"]
    resources = requirements["ResourceRequirement"]
    assert resources["ramMin"] == at(asked["mem_mb"], 1)
    assert resources["ramMax"] == at(asked["mem_mb"], TRIES)
    assert requirements["ToolTimeLimit"]["timelimit"] == 60 * at(asked["runtime"], TRIES)


@pytest.mark.parametrize("name", STAGES)
def test_a_tool_asks_for_the_cores_of_its_rule(name: str) -> None:
    resources, threads = TOOLS[name]["requirements"]["ResourceRequirement"], rule(name)["threads"]
    assert set(resources) == {"coresMin", "coresMax", "ramMin", "ramMax"}
    if isinstance(resources["coresMax"], int):
        # Snakemake gives a rule fewer threads where there are fewer cores; a minimum in CWL would stop it.
        assert (resources["coresMin"], resources["coresMax"]) == (1, threads)
    else:
        # The input of that name is the setting that the rule's threads follow.
        word = re.fullmatch(r"\$\(inputs\.(\w+)\)", resources["coresMin"])
        assert word
        assert resources["coresMin"] == resources["coresMax"]
        assert DEMO[name][word[1]] == threads


def test_the_pipeline_scatters_over_scenes_and_over_folds() -> None:
    steps = WORKFLOWS["pipeline"]["steps"]
    scattered = {name: step["scatter"] for name, step in steps.items() if "scatter" in step}
    assert scattered == {"fetch": "item", "preprocess": "scene", "cross_validate": "fold"}


def test_what_is_optional_is_left_out_when_its_input_says_so() -> None:
    steps = WORKFLOWS["pipeline"]["steps"]
    optional = {name: step["in"]["wanted"] for name, step in steps.items() if step.get("when") == "$(inputs.wanted)"}
    assert optional == {"export": "with_onnx", "report": "with_report", "crate": "with_crate"}
    made = WORKFLOWS["pipeline"]["outputs"]
    assert all(port["type"].endswith("?") == (port["outputSource"].split("/")[0] in optional) for port in made.values())


@pytest.mark.parametrize(("file", "stages"), [("docker", STAGES), ("gpu", ("train", "predict"))])
def test_the_keys_of_an_override_file_are_tools(file: str, stages: tuple[str, ...]) -> None:
    # As cwltool and Toil read them: beside the document that they run.
    told = load_overrides((CWL / f"overrides/{file}.yml").as_uri(), (CWL / "pipeline.cwl").as_uri())
    assert {one["overrideTarget"] for one in told} == {(CWL / f"{name}.cwl").as_uri() for name in stages}


@pytest.mark.parametrize(("file", "said"), [("docker", "Docker"), ("gpu", "CUDARequirement")])
def test_an_override_file_reaches_the_tool(file: str, said: str, tmp_path: Path) -> None:
    # This machine is told to have neither containers nor a GPU, and cwltool's word for that is looked for.
    (tmp_path / "model").mkdir()
    (tmp_path / "job.yml").write_text("model: {class: Directory, path: model}\ntiles: []\n")
    words = [Path(sys.executable).with_name("cwltool"), "--quiet", "--overrides", CWL / f"overrides/{file}.yml"]
    words, none = [str(word) for word in (*words, CWL / "predict.cwl", "job.yml")], {"PATH": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=none)
    assert done.returncode != 0
    assert said in done.stderr
