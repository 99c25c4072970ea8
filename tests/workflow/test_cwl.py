"""The same pipeline under CWL: the same bytes, and single tools that work as written."""

import hashlib
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from cwl_utils.parser import load_document_by_uri
from projects import DAYS, ROOT, Project, cwltool

TOOLS = {path.stem: path for path in (ROOT / "cwl").glob("*.yml")}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "name",
    [
        "model/manifest.json",
        "calibration.json",
        "metrics.json",
        "split.json",
        "split.png",
        "split.gpkg",
        "statistics.json",
        "grid.json",
        "selection.json",
        "model.onnx",
        "report.html",
        "model-card.md",
        "data-card.md",
        "catalog/manifest.json",
    ],
)
def test_cwl_and_snakemake_make_the_same_bytes(finished: Project, by_cwl: Path, name: str) -> None:
    assert sha256(by_cwl / name) == sha256(finished.results / name)


def test_cwl_and_snakemake_make_the_same_tiles_and_maps(finished: Project, by_cwl: Path) -> None:
    for day in DAYS:
        store = f"S2_ROMANIA_{day}.zarr"
        assert sha256(by_cwl / store / "manifest.json") == sha256(finished.results / "tiles" / store / "manifest.json")
    for name in ("classes.tif", "probabilities.tif"):
        assert sha256(by_cwl / name) == sha256(finished.results / "maps/mosaic" / name)


def test_the_crate_of_a_cwl_run_has_every_job_its_engine_and_its_packages(by_cwl: Path) -> None:
    graph = json.loads((by_cwl / "crate/ro-crate-metadata.json").read_text())["@graph"]
    actions = [e for e in graph if e["@type"] == "CreateAction"]
    assert len(actions) == 1 + 1 + 2 * len(DAYS) + 9
    (engine,) = [e for e in graph if e["@id"] == "https://www.commonwl.org/"]
    assert engine["softwareVersion"] == version("cwltool")
    assert engine["description"] == "Workflow engine: cwltool"
    assert sha256(by_cwl / "crate/constraints.txt") == sha256(ROOT / "constraints.txt")
    steps = [e for e in graph if e["@type"] == "HowToStep"]
    assert {e["buildInstructions"]["@id"] for e in steps} == {"constraints.txt"}


@pytest.mark.parametrize("engine", ["snakemake", "cwl"])
def test_the_crate_has_the_list_of_scenes_and_its_digest(finished: Project, by_cwl: Path, engine: str) -> None:
    crate = {"snakemake": finished.results, "cwl": by_cwl}[engine] / "crate"
    selection = json.loads((crate / "selection.json").read_text())
    lines = "".join(f"{sha256(path)}  {path.stem}\n" for path in sorted((crate / "scenes").glob("*.geojson")))
    assert selection["digest"] == hashlib.sha256(lines.encode()).hexdigest()
    graph = {e["@id"]: e for e in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]}
    assert graph["selection.json"]["sha256"] == sha256(crate / "selection.json")
    assert {"@id": "selection.json"} in graph["#job/search"]["result"]


@pytest.fixture(scope="module")
def checkout(demo: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the demo has run, as far as the files in cwl/ need it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "cwl", folder / "cwl")
    (folder / "sample").symlink_to(ROOT / "sample")
    (folder / "Snakefile").symlink_to(ROOT / "Snakefile")
    shutil.copytree(demo.results, folder / "results")
    for path in (folder / "cwl").glob("*.yml"):
        # This run has six of the demo's scenes.
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if "S2_ROMANIA_" not in line or any(d in line for d in DAYS)))
    return folder


@pytest.mark.exhaustive
def test_cwltool_train_inputs_works_literally_with_a_long_name_of_the_temporary_folder(
    checkout: Path, demo: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the path of a socket may be.
    (tmp_path / ("t" * 150)).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("t" * 150)))
    job = checkout / "cwl/inputs.yml"
    job.write_text(job.read_text().replace("processes: 2", "processes: 2\nepochs: 6\nwidth: 8"))
    outputs = cwltool("train.cwl", "inputs.yml", cwd=checkout / "cwl")
    assert outputs["model"]["class"] == "Directory"
    assert sha256(checkout / "cwl/model/manifest.json") == sha256(demo.results / "model/manifest.json")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(set(TOOLS) - {"inputs", "pipeline"}))
def test_the_job_file_beside_a_tool_works(checkout: Path, name: str, tmp_path: Path) -> None:
    cwltool("--outdir", tmp_path, f"{name}.cwl", f"{name}.yml", cwd=checkout / "cwl")
    assert list(tmp_path.glob("*.run.json"))


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_a_job_file_names_only_existing_inputs(name: str) -> None:
    tool = load_document_by_uri(ROOT / f"cwl/{'train' if name == 'inputs' else name}.cwl")
    known = {entry.id.rpartition("#")[2].rpartition("/")[2] for entry in tool.inputs}
    assert set(yaml.safe_load(TOOLS[name].read_text())) <= known
