"""`eopipe cwl`: the job of a config gives every stage the arguments that the rule of Snakemake gives it."""

import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from projects import ROOT

from dev.cwl_variants import built, committed
from eopipe import cli
from eopipe.arguments import parse
from eopipe.config import load, model
from eopipe.contract import STAGES, Input, Option, Output, Port, is_path, stage
from eopipe.errors import UsageError
from eopipe.run.cwl import JOB, job, job_text, steps
from eopipe.run.locate import shipped
from eopipe.run.rules import knobs, options

EXAMPLES = [ROOT / "config/config.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]
DOCUMENTS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "cwl").glob("*.cwl")}
TOOLS = {name: DOCUMENTS[name] for name in STAGES}
Config = dict[str, Any]


def inputs_of(step: Config, outer: Config) -> Config:
    """The values of a step's inputs that follow from the settings; what other steps make has none."""
    values = {}
    for name, source in step["in"].items():
        if isinstance(source, str) and source in outer:
            values[name] = outer[source]
        elif isinstance(source, dict) and name == "grid_assets":
            first, second = (outer[name] for name in source["source"])
            values[name] = second if first is None else first
        elif isinstance(source, dict) and "default" in source:
            values[name] = source["default"]
    return values


def steps_of(job_inputs: Config, pipeline: str) -> list[tuple[str, Config]]:
    """Each stage that a pipeline may run, with its inputs; steps of the workflows in it too."""
    defaults = {name: port.get("default") for name, port in DOCUMENTS[pipeline]["inputs"].items()}
    assert {*job_inputs} <= {*defaults}
    queue = [(pipeline, defaults | job_inputs)]
    stages = []
    while queue:
        name, values = queue.pop()
        for step in DOCUMENTS[name]["steps"].values():
            target, inner = step["run"].removesuffix(".cwl"), inputs_of(step, values)
            if target in STAGES:
                # The number of a fold is not a setting of the config.
                of_fold = {
                    key: (defaults | job_inputs)[f"{target}_{key}"]
                    for key in ("fold", "folds")
                    if f"{target}_{key}" in defaults
                }
                stages.append((target, inner | of_fold if name == "fold" else inner))
            elif DOCUMENTS[target]["class"] == "Workflow":
                queue.append((target, inner))
    return stages


def words_of(name: str, values: Config) -> list[str]:
    """The command line that CWL makes of a tool's inputs (section 4.1 of its specification)."""
    words, names = [], {f"{port.name}_name" for port in stage(name).of(Output)}
    for port, entry in TOOLS[name]["inputs"].items():
        value = values.get(port)
        value = entry.get("default") if value is None else value
        if "inputBinding" not in entry or value is None or value is False or value == [] or port in names:
            continue
        elements = [] if value is True else value if isinstance(value, list) else [value]
        texts = (str(ROOT / unquote(e["location"])) if isinstance(e, dict) else str(e) for e in elements)
        words += [entry["inputBinding"]["prefix"], *texts]
    return words


def arguments(name: str, words: list[str]) -> Config:
    """What the stage reads in a command line, of the settings of a config."""
    definition = stage(name)
    required = [
        word
        for p in definition.ports
        if p.required and p.flag not in words
        for word in (p.flag, "1" if p.base is int else "x")
    ]
    values = parse(definition, [*required, *words])
    shared = [p for p in definition.ports if p.section and p.name != "allow_code"]
    ports = [p for p in definition.settings if p in definition.ports]
    return {p.name: values[p.name] for p in (*ports, *shared) if (name, p.name) != ("crate", "engine")}


def of_snakemake(config: Config, name: str) -> Config:
    return arguments(name, [*shlex.split(options(config, name)), *shlex.split(knobs(config, name))])


def assert_same_arguments(config: Config) -> None:
    written = yaml.safe_load(job_text(job(config, ROOT, ROOT / "config/config.yaml"), "config.yaml"))
    stages = steps_of(written, "finished-model" if config["model"] else "pipeline")
    of_training = {"split", "train", "choose", "calibrate", "export"}
    assert {name for name, _ in stages} == {*STAGES} - {"import"} - (of_training if config["model"] else set())
    for name, values in stages:
        expected, actual = of_snakemake(config, name), arguments(name, words_of(name, values))
        if values.get("reducer", "best") != "best":
            # The score of a config ranks the trials, and a rung and an ensemble do not use it.
            expected["score"] = None
        for of in (expected, actual):
            paths = {key: v for key, v in of.items() if isinstance(v, Path)}
            of |= {key: path.resolve() for key, path in paths.items()}
            of |= {key: tuple(p.resolve() for p in v) for key, v in of.items() if key == "model_files"}
        assert actual == expected, name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_config_gives_every_stage_the_same_arguments(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load(path)
    for name in STAGES:
        for port in stage(name).of(Input):
            value = config[name].get(port.name)
            if port.mark.user and value and not Path(str(value)).exists():
                # Labels and catalogs that are the user's own.
                config[name][port.name] = Path("sample") if port.mark.folder else Path("sample/area.geojson")
    assert_same_arguments(config)


@pytest.mark.parametrize("label", [{}, {"source": Path("sample/area.geojson"), "bins": (50.0,)}, {"asset": "scl"}])
def test_a_config_with_a_finished_model_gives_every_stage_the_same_arguments(
    label: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = load(ROOT / "config/config.yaml")
    # Of these folders and files only the places are looked at.
    config |= {"model": "sample", "calibration": "sample/area.geojson"}
    defaults = model().model_validate({}).model_dump()
    config |= {name: defaults[name] for name in ("label", "split", "train", "report")}
    config["train"]["architecture"] = "vit.py:ViT"
    config["composite"]["parts"] = ("JJA",)
    config["label"] |= label
    assert_same_arguments(config)
    assert job(config, ROOT, ROOT / "config/config.yaml").get("with_labels", False) == bool(label)


def values_of(port: Port) -> st.SearchStrategy[Any]:
    """Values of a setting that its own type allows; what they mean beside others does not matter here."""
    limits = {"ge": 0, "le": 10**4} | (port.mark.constraints if isinstance(port.mark, Option) else {})
    least = limits.get("gt", limits["ge"])
    if port.choices:
        single: st.SearchStrategy[Any] = st.sampled_from(port.choices)
    elif port.base is bool:
        single = st.booleans()
    elif port.base is int:
        unit = limits.get("multiple_of", 1)
        single = st.integers(-(-least // unit), min(limits["le"], 512) // unit).map(lambda number: number * unit)
    elif port.base is float:
        most = limits.get("lt", limits["le"])
        single = st.floats(least, most, exclude_min="gt" in limits, exclude_max="lt" in limits, allow_subnormal=False)
    else:
        single = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1).filter(
            lambda text: not text.startswith(("-", "@"))
        )
    values = (
        st.lists(single, min_size=0 if port.default == () else 1, max_size=4).map(tuple) if port.is_list else single
    )
    return st.none() | values if port.optional else values


# A pattern has its own tests, and a custom model needs files.
SETTINGS = [
    (name, port)
    # The workflow of a chip set alone has an import.
    for name in STAGES[1:]
    for port in stage(name).settings
    if not is_path(port)
    and "pattern" not in port.mark.constraints  # type: ignore[union-attr]
    and (name, port.name) not in {("train", "architecture"), ("train", "arguments"), ("train", "nodes")}
]


@settings(max_examples=15)
@given(st.data())
def test_a_random_config_gives_every_stage_the_same_arguments(data: st.DataObject) -> None:
    config = model().model_validate({"label": {"source": str(ROOT / "sample/area.geojson")}}).model_dump()
    chosen = st.lists(st.integers(0, len(SETTINGS) - 1), max_size=12, unique=True)
    for name, port in (SETTINGS[number] for number in data.draw(chosen)):
        config[name][port.name] = data.draw(values_of(port))
    config["search"]["grid_assets"] = config["search"]["grid_assets"] or config["preprocess"]["bands"]
    assert_same_arguments(config)


@pytest.mark.parametrize(
    ("deciding", "steps_that_run"),
    [
        ((None, "none", "blocks", "scene"), {"label_file", "mosaic"}),
        ((None, "median", "blocks", "scene"), {"label_file", "composite", "mosaic"}),
        (("scl", "none", "blocks", "scene"), {"label_scenes", "images"}),
        ((None, "none", "temporal", "scene"), {"label_file", "images"}),
        ((None, "none", "group", "scene"), {"label_file", "images"}),
        ((None, "none", "group", "region"), {"label_file", "mosaic"}),
        # A finished model has no split.
        ((None, "none", None, None), {"label_file", "mosaic"}),
        (("scl", "none", None, None), {"label_scenes", "images"}),
    ],
)
def test_the_steps_of_a_job_are_those_that_its_settings_need(deciding: Any, steps_that_run: set[str]) -> None:
    assert {name for name, runs in steps(*deciding, with_labels=True).items() if runs} == steps_that_run


@pytest.mark.parametrize("asset", [None, "scl"])
def test_a_finished_model_without_labels_has_one_map_of_all_images(asset: str | None) -> None:
    decided = steps(asset, "median", None, None, with_labels=False)
    assert {name for name, runs in decided.items() if runs} == {"composite", "mosaic"}


def test_a_folder_that_eopipe_cwl_wrote_has_all_that_the_job_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a #1").mkdir()
    (tmp_path / "a #1/sample").symlink_to(ROOT / "sample")
    (tmp_path / "a #1/config.yaml").write_text((ROOT / "config/config.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.main(["cwl", "a #1", "--to", "jobs"]) == 0
    names = {str(path.relative_to(tmp_path / "jobs")) for path in (tmp_path / "jobs").rglob("*.*")}
    assert names >= {"pipeline.cwl", "packed/pipeline.cwl", "overrides/docker.yml", "train.cwl", JOB}
    inputs = yaml.safe_load((tmp_path / "jobs" / JOB).read_text())
    assert inputs["search_catalog"] == {"class": "Directory", "location": "../a%20%231/sample"}
    assert inputs["train_processes"] == 2
    assert (tmp_path / "jobs/train.cwl").read_bytes() == shipped("cwl/train.cwl").read_bytes()
    # What the crate contains is the workflow with all its tools.
    assert inputs["workflow"] == {"class": "File", "location": "packed/pipeline.cwl"}
    for name, text in built(committed()).items():
        assert (tmp_path / "jobs" / name).read_text() == text


def test_a_job_file_of_somebody_else_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / JOB).write_text("train_epochs: 3\n")
    assert cli.main(["cwl", "--to", str(tmp_path)]) == 2
    assert "job.yml, which eopipe did not write and would replace" in capsys.readouterr().err
    assert (tmp_path / JOB).read_text() == "train_epochs: 3\n"


def test_a_training_on_many_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load(ROOT / "config/config.yaml")
    config["train"]["nodes"] = "2"
    with pytest.raises(UsageError, match=r"train\.nodes is 2, but a job of CWL has one node"):
        job(config, Path(), Path("config/config.yaml"))


def test_products_are_switched_on_in_a_job_as_in_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load(ROOT / "config/config.yaml")
    assert "with_products" not in job(config, ROOT, ROOT / "config/config.yaml")
    config |= {"with_products": True, "products": config["products"] | {"zones": Path("sample/area.geojson")}}
    inputs = job(config, ROOT, ROOT / "config/config.yaml")
    assert inputs["with_products"] is True
    assert inputs["products_zones"] == {"class": "File", "location": "sample/area.geojson"}
