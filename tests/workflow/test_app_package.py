"""The EO Application Packages: valid for two validators, and run from a STAC catalog to a STAC catalog."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pystac
import pytest
import yaml
from projects import DAYS, ROOT, cwltool
from stac_schemas import schema_errors

PACKAGE = ROOT / "cwl/app-package.cwl"
BIN = ROOT / ".venv/validators/bin"
STAGED = {"eopipe-train": ["catalog"], "eopipe-predict": ["catalog", "model"]}
IDS = [f"S2_ROMANIA_{day}" for day in (DAYS[0], DAYS[3])]
SAMPLE = {"class": "Directory", "path": str(ROOT / "sample")}
PIPELINE = yaml.safe_load((ROOT / "cwl/pipeline.yml").read_text())
PACKAGES = {process["id"]: process for process in yaml.safe_load(PACKAGE.read_text())["$graph"]}


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a validator; both start a cwltool of their own."""
    if not BIN.is_dir():
        pytest.skip("the validators of EO Application Packages are not installed; run `make .venv/validators`")
    path = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        [str(argument) for argument in arguments], capture_output=True, text=True, check=False, env=path
    )


def eoap(package: Path, name: str, folder: Path) -> dict[str, Any]:
    """The report of eoap-validator."""
    staging, report_file = folder / "staging.json", folder / "report.json"
    staging.write_text(json.dumps({"inputs": {name: STAGED[name]}, "outputs": {name: ["stac"]}}))
    profiles = [word for profile in ("eoap-package", "metadata", "eoap-staging") for word in ("--profile", profile)]
    result = command(
        BIN / "eoap-validator", f"{package}#{name}", *profiles, "--staging", staging, "--output", report_file
    )
    report: dict[str, Any] = (
        json.loads(report_file.read_text()) if report_file.is_file() else {"output": result.stdout + result.stderr}
    )
    return report | {"code": result.returncode}


def failures(report: dict[str, Any]) -> list[str]:
    failed = [finding for finding in report["findings"] if finding["status"] in ("failed", "blocked")]
    return [f"{finding['rule_id']}: {finding['message']}" for finding in failed]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STAGED)
def test_eoap_validator_finds_no_failure(name: str, tmp_path: Path) -> None:
    report = eoap(PACKAGE, name, tmp_path)
    assert failures(report) == []
    assert report["code"] == 0
    reviewed = {finding["rule_id"] for finding in report["findings"] if finding["status"] == "needs-review"}
    assert reviewed == {"EOAP.CONTAINER.HINT", "EOAP.REQ14.COVERAGE"}


@pytest.mark.exhaustive
def test_ap_validator_finds_no_failure() -> None:
    # Without an entry point it validates all of them.
    result = command(BIN / "ap-validator", "--detail", "errors", PACKAGE)
    assert (result.returncode, "CWL is compliant" in result.stdout) == (0, True), result.stdout + result.stderr


@pytest.mark.exhaustive
def test_both_validators_find_a_missing_container_and_a_missing_description(tmp_path: Path) -> None:
    document = yaml.safe_load(PACKAGE.read_text())
    tools = [process for process in document["$graph"] if process["class"] == "CommandLineTool"]
    del tools[0]["hints"]["DockerRequirement"], document["$graph"][0]["doc"]
    (tmp_path / "broken.cwl").write_text(yaml.safe_dump(document))
    messages = " ".join(failures(eoap(tmp_path / "broken.cwl", "eopipe-train", tmp_path)))
    assert "EOAP.REQ8.DOCKER" in messages
    assert "EOAP.REQ9.DOC" in messages
    assert command(BIN / "ap-validator", "--entry-point", "eopipe-train", tmp_path / "broken.cwl").returncode == 1


def test_a_container_is_a_hint_everywhere_and_every_tool_has_all_its_requirements() -> None:
    graph = yaml.safe_load(PACKAGE.read_text())["$graph"]
    tools = [process for process in graph if process["class"] == "CommandLineTool"]
    assert [process["id"] for process in graph if process["class"] == "Workflow"] == list(STAGED)
    for tool in tools:
        assert "DockerRequirement" not in tool["requirements"]
        assert set(tool["requirements"]["ResourceRequirement"]) == {"coresMin", "coresMax", "ramMin", "ramMax"}
        assert tool["requirements"]["NetworkAccess"] == {"networkAccess": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the first package for two scenes."""
    job = {"label_source": {"class": "File", "path": str(ROOT / "sample/tree_cover_density_2018.tif")}}
    small = {"split_stride": 16, "train_width": 4, "train_epochs": 1, "train_processes": 1}
    return package("eopipe-train", job | small, tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def predicted(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of the second package for the same scenes and the model."""
    job = {"model": {"class": "Directory", "path": str(trained)}}
    return package("eopipe-predict", job, tmp_path_factory.mktemp("predict"))


def package(name: str, job: dict[str, Any], folder: Path) -> Path:
    demo = {key: value for key, value in PIPELINE.items() if key in PACKAGES[name]["inputs"]}
    (folder / "job.yml").write_text(yaml.safe_dump(demo | {"catalog": SAMPLE, "search_ids": IDS} | job))
    outputs = cwltool("--no-container", "--outdir", "out", f"{PACKAGE}#{name}", "job.yml", cwd=folder)
    assert list(outputs) == ["stac"]
    return Path(outputs["stac"]["path"])


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.exhaustive
def test_a_package_returns_a_self_contained_stac_catalog(trained: Path, predicted: Path) -> None:
    for folder in (trained, predicted):
        documents = [read for p in folder.rglob("*.json") if "stac_version" in (read := json.loads(p.read_text()))]
        assert [message for document in documents for message in schema_errors(document)] == []
        items = {
            item.id: item for item in pystac.Catalog.from_file(str(folder / "catalog.json")).get_items(recursive=True)
        }
        assert {"map", *IDS} < set(items)


@pytest.mark.exhaustive
def test_the_model_of_one_package_makes_the_same_map_in_the_other(trained: Path, predicted: Path) -> None:
    for name in ("maps/map/classes.tif", "maps/map/probabilities.tif", "model/manifest.json"):
        assert sha256(trained / name) == sha256(predicted / name)
    assert (trained / "maps/metrics.json").is_file()
    assert not (predicted / "maps/metrics.json").exists()


@pytest.mark.exhaustive
def test_a_later_run_searches_the_output_of_a_package(predicted: Path, tmp_path: Path) -> None:
    arguments = ["--items", tmp_path / "items", "--grid", tmp_path / "grid.json", "--selection", tmp_path / "s.json"]
    arguments += ["--catalog", predicted, "--collections", "maps", "--assets", "classes"]
    result = subprocess.run([sys.executable, "-m", "eopipe", "search", *map(str, arguments)], check=False)
    assert result.returncode == 0
    assert [path.name for path in (tmp_path / "items").glob("*.geojson")] == ["map.geojson"]
