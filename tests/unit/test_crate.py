"""The crate of a run that really ran, checked by the validator of the profile."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offline_rocrate import issues, seed
from scenery import Catalog, Run, search_outputs, split_outputs, write_raster
from synthetic_run import synthetic_run

from eopipe.cli import main
from eopipe.errors import BadInputError, IntegrityError
from eopipe.provenance import record
from eopipe.provenance.crate_reader import RunCrate, read_crate
from eopipe.provenance.data_entities import media_type
from eopipe.provenance.jobs import RecordedJob, RunRecord, recorded_command
from eopipe.provenance.redact import redact_argument, redact_command, redact_paths
from eopipe.provenance.rerun import CrateRerun, find_user_inputs
from eopipe.publish import digest, sha256, write_manifest
from eopipe.stac.mlm import SAFETENSORS
from eopipe.text_files import read_json, write_json

Entities = dict[str, dict[str, Any]]
HOME, USER = "home", "grace hopper"
LICENCE, TOKEN = "https://example.org/legal", "sig=5ecret"
TOOL = "https://github.com/eopipe/eopipe/blob/v{}/eopipe/stages/{}.py"


CITED = {
    "sci:doi": "10.5270/S2_-znk9xsj",
    "sci:citation": "Copernicus Sentinel-2 (2021). Level 2A.",
    "providers": [{"name": "ESA", "roles": ["producer"], "url": "https://esa.int"}, {"name": "A mirror"}],
}


class Project:
    """A run on disk, in the home of a user: scenes A and B up to the split, and a job that failed."""

    def __init__(self, root: Path) -> None:
        self.root, self.results = root, root / "results"
        self.failed = self.results / "tiles/lost.zarr.run.json"

    def make(self) -> None:
        """Run the stages."""
        catalog = Catalog(self.root / "catalog")
        for name in ("A", "B"):
            item = catalog.add(name, shape=(64, 96), properties={"attribution": "Contains Copernicus data"} | CITED)
            before = f"https://grace:pw@example.org/items/{name}?{TOKEN}"
            item["links"] = [{"rel": "license", "href": LICENCE}, {"rel": "derived_from", "href": before}]
        truth = np.tile(np.repeat([[0], [1]], 8, axis=0), (4, 96)).astype("uint8")
        source = write_raster(self.root / "truth.tif", truth, nodata=255)
        (self.root / "Snakefile").write_text("rule all:\n    input: []\n")
        (self.root / "config.yaml").write_text("results: results\n")
        (self.root / "constraints.txt").write_text("numpy==2.4.0\n")
        results, of_catalog = self.results, ("--catalog", catalog.write())
        grid, small, bands = ("--grid", results / "grid.json"), ("--chunk", 32, "--shard", 64), ("blue", "red")
        self.run("search", *search_outputs(results), *of_catalog, "--assets", *bands, "scl")
        for name in ("A", "B"):
            item, scene = results / f"items/{name}.geojson", ("--scene", results / "scenes" / name)
            self.run("fetch", "--item", item, *scene, *of_catalog)
            self.run("preprocess", *scene, *grid, "--tiles", results / f"tiles/{name}.zarr", "--bands", *bands, *small)
        self.run("label", *grid, "--labels", results / "labels/all.zarr", "--source", source, "--codes", 0, 1, *small)
        self.split(results, chip=16)
        lost = ("--tiles", results / "tiles/lost.zarr", "--bands", "swir", "--mask", results / "none")
        self.run("preprocess", "--scene", results / "scenes/A", *grid, *lost, code=3)

    def split(self, results: Path, chip: int) -> None:
        """Split what is in these results."""
        stores = ("--tiles", *sorted(results.glob("tiles/?.zarr")), "--labels", results / "labels/all.zarr")
        cut = ("--chip", chip, "--method", "west-east", "--fractions", 0.5, 0, 0.5)
        self.run("split", *stores, *split_outputs(results), *cut)

    def run(self, *arguments: object, code: int = 0) -> None:
        """Run one command as a shell would."""
        with patch.object(sys, "argv", ["eopipe", *map(str, arguments)]):
            assert main(sys.argv[1:]) == code

    @property
    def records(self) -> list[Path]:
        """The records of the jobs that succeeded."""
        return sorted(set(self.results.rglob("*.run.json")) - {self.failed})

    @property
    def items(self) -> list[Path]:
        return sorted(self.results.glob("items/*.geojson"))

    def crate(self, target: Path, *extra: object, code: int = 0, **ports: list[Path]) -> Path:
        """Make a crate; `ports` replace its usual inputs."""
        inputs = {
            "records": self.records,
            "payload": [self.results / n for n in ("split.json", "grid.json", "selection.json", "labels/all.zarr")],
            "scenes": self.items,
            "workflow": [self.root / "Snakefile"],
            "config": [self.root / "config.yaml"],
            "lock": [self.root / "constraints.txt"],
        } | ports
        arguments = [word for port, paths in inputs.items() if paths for word in (f"--{port}", *paths)]
        self.run("crate", *arguments, "--crate", target, *extra, code=code)
        return target


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("run") / HOME / USER / "project")
    project.make()
    return project


@pytest.fixture(scope="module")
def crate(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The validator cannot read a crate below a folder whose name has a space.
    return project.crate(tmp_path_factory.mktemp("crate") / "crate", "--engine-version", "9.27.1")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seed(tmp_path_factory.mktemp("cache") / "http")


def entities(crate: Path) -> Entities:
    """The entities of a crate by their ids."""
    return {entity["@id"]: entity for entity in read_json(crate / "ro-crate-metadata.json")["@graph"]}


@pytest.fixture(scope="module")
def graph(crate: Path) -> Entities:
    return entities(crate)


def of_type(graph: Entities, kind: str) -> list[dict[str, Any]]:
    return [e for e in graph.values() if kind in (e["@type"] if isinstance(e["@type"], list) else [e["@type"]])]


def ids(value: Any) -> list[str]:
    """The ids that a property refers to."""
    return [ref["@id"] for ref in (value if isinstance(value, list) else [value] if value else [])]


# The profile


@pytest.mark.exhaustive
def test_the_crate_passes_the_required_and_recommended_checks_of_the_profile(crate: Path, cache: Path) -> None:
    assert issues(crate, cache, "RECOMMENDED") == []


def test_a_crate_follows_the_newest_profiles_that_the_installed_validator_knows(graph: Entities) -> None:
    profile = re.compile(r"https://w3id\.org/ro/wfrun/(\w+)/([\d.]+)")
    folder = Path(str(files("rocrate_validator").joinpath("profiles")))
    texts = [path.read_text() for path in folder.glob("*-run-crate/**/profile.ttl")]
    newest: dict[str, list[int]] = {}
    for name, version in profile.findall(" ".join(texts)):
        newest[name] = max(newest.get(name, []), [int(number) for number in version.split(".")])
    followed = profile.findall(json.dumps(graph["./"]["conformsTo"]))
    assert len(newest) == len(followed) == 3
    assert newest == {name: [int(number) for number in version.split(".")] for name, version in followed}, (
        "write the newer profiles: PROFILES of crate.py, CRATE_VERSION and TERMS of graph.py, docs/provenance.md"
    )


@pytest.mark.exhaustive
def test_a_crate_with_people_passes_the_recommended_checks_too(project: Project, tmp_path: Path, cache: Path) -> None:
    people = ("--author", "Ada Lovelace", "--orcid", "0000-0002-1825-0097", "--organization", "Example Lab")
    crate = project.crate(tmp_path / "crate", *people, "--ror", "05xvt9f17", "--license", "CC-BY-4.0")
    assert issues(crate, cache, "RECOMMENDED") == []
    graph = entities(crate)
    author = graph["https://orcid.org/0000-0002-1825-0097"]
    assert (author["@type"], author["name"]) == ("Person", "Ada Lovelace")
    assert ids(author["affiliation"]) == ids(graph["./"]["publisher"]) == ["https://ror.org/05xvt9f17"]
    assert ids(graph["./"]["license"]) == ["https://spdx.org/licenses/CC-BY-4.0"]
    assert "Ada Lovelace, Example Lab" in (crate / "README.md").read_text()


def test_a_crate_without_licence_and_author_says_so_and_grants_nothing(crate: Path, graph: Entities) -> None:
    (licence,), (author,) = ids(graph["./"]["license"]), ids(graph["./"]["author"])
    assert graph[licence]["name"] == "none stated"
    assert "no rights are granted" in graph[licence]["description"]
    assert graph[author]["name"] == "not stated"
    metadata = (crate / "ro-crate-metadata.json").read_text()
    assert [word for word in ("licenses/Apache-2.0", "eopipe user") if word in metadata] == []
    assert "Licence: none stated." in (crate / "README.md").read_text()


@pytest.mark.exhaustive
def test_the_validator_finds_a_step_that_controls_nothing(crate: Path, cache: Path, tmp_path: Path) -> None:
    shutil.copytree(crate, folder := tmp_path / "cut")
    metadata = read_json(folder / "ro-crate-metadata.json")
    del {entity["@id"]: entity for entity in metadata["@graph"]}["#control/split"]["object"]
    write_json(folder / "ro-crate-metadata.json", metadata)
    assert any("#control/split" in issue for issue in issues(folder, cache))


@pytest.mark.exhaustive
def test_a_crate_of_a_cwl_run_needs_no_config_and_no_lock(project: Project, tmp_path: Path, cache: Path) -> None:
    pipeline = tmp_path / "pipeline.cwl"
    pipeline.write_text("cwlVersion: v1.2\n")
    ports: dict[str, list[Path]] = {"workflow": [pipeline], "config": [], "lock": []}
    crate = project.crate(tmp_path / "crate", "--engine", "cwl", **ports)
    assert issues(crate, cache) == []
    graph = entities(crate)
    assert ids(graph["pipeline.cwl"]["programmingLanguage"]) == ["https://w3id.org/workflowhub/workflow-ro-crate#cwl"]
    assert graph["https://www.commonwl.org/"]["softwareVersion"] == "not recorded"


@pytest.mark.exhaustive
def test_a_crate_takes_more_records_than_a_command_may_have(project: Project, crate: Path, tmp_path: Path) -> None:
    # Longer than a command may be; a record that is listed twice counts once.
    paths = [str(path.parent / ("./" * 20) / path.name) for path in project.records]
    paths *= 2 * os.sysconf("SC_ARG_MAX") // sum(map(len, paths))
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true", *paths], check=False)
    (tmp_path / "records.txt").write_text("".join(f"{path}\n" for path in paths))
    files = [{"class": "File", "path": str(path)} for path in project.items]
    (tmp_path / "scenes.json").write_text(json.dumps(files))
    lists = {"records": [f"@{tmp_path}/records.txt"], "scenes": [f"@{tmp_path}/scenes.json"]}
    listed = project.crate(tmp_path / "crate", **lists)  # type: ignore[arg-type]
    assert set(entities(listed)) == set(entities(crate))


# Its content


def test_every_job_is_an_action_with_tool_command_and_zoned_times(project: Project, graph: Entities) -> None:
    jobs = {e["@id"] for e in of_type(graph, "CreateAction")} - {"#run"}
    both = {f"#job/{stage}/{name}" for stage in ("fetch", "preprocess") for name in "AB"}
    assert jobs == both | {"#job/search", "#job/label", "#job/split"}
    job, record = graph["#job/preprocess/B"], read_json(project.results / "tiles/B.zarr.run.json")
    assert ids(job["instrument"]) == [TOOL.format(record["version"], "preprocess")]
    assert (job["startTime"], job["endTime"]) == (record["start"], record["end"])
    # The run ends when its last job ends, and not when the crate is made.
    last = max(read_json(path)["end"] for path in project.records)
    assert graph["./"]["datePublished"] == graph["#run"]["endTime"] == last
    assert job["startTime"].endswith("+00:00")
    assert job["actionStatus"] == "http://schema.org/CompletedActionStatus"
    assert job["description"].startswith("eopipe preprocess --scene B --grid grid.json --tiles B.zarr --bands blue red")
    usage = {graph[i]["name"]: graph[i]["value"] for i in ids(job["resourceUsage"])}
    assert usage == record["usage"]
    assert ids(graph["#control/preprocess/B"]["object"]) == ["#job/preprocess/B"]
    assert set(ids(graph["#engine"]["object"])) == {e["@id"] for e in of_type(graph, "ControlAction")}


@pytest.mark.exhaustive
def test_a_job_in_a_container_names_its_image_without_a_path_of_the_machine(
    project: Project, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EOPIPE_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        monkeypatch.delenv(name, raising=False)
    assert record.container() == ""
    monkeypatch.setenv("APPTAINER_CONTAINER", "/home/grace/eopipe.sif")
    assert record.container() == "eopipe.sif"
    monkeypatch.setenv("EOPIPE_CONTAINER", "docker://ghcr.io/eopipe/eopipe:0.1.0")
    source = ("--source", project.root / "truth.tif", "--codes", 0, 1)
    project.run("label", "--grid", project.results / "grid.json", "--labels", tmp_path / "l.zarr", *source)
    records = [*(path for path in project.records if path.name != "all.zarr.run.json"), tmp_path / "l.zarr.run.json"]
    crate = project.crate(tmp_path / "crate", records=records)
    assert issues(crate, cache, "RECOMMENDED") == []
    graph = entities(crate)
    (image,) = ids(graph["#job/label"]["containerImage"])
    kind = "https://w3id.org/ro/terms/workflow-run#DockerImage"
    name = {"name": "eopipe/eopipe", "registry": "ghcr.io", "tag": "0.1.0"}
    assert graph[image] == {"@id": image, "@type": "ContainerImage", "additionalType": {"@id": kind}} | name
    assert "containerImage" not in graph["#job/split"]


def test_types_versions_and_parameters_are_as_other_readers_expect_them(graph: Entities) -> None:
    assert graph["https://snakemake.github.io/"]["softwareVersion"] == "9.27.1"
    types = {"w.safetensors": SAFETENSORS, "m.onnx": "application/onnx", "metrics.jsonl": "application/jsonl"}
    types |= {"CITATION.cff": "application/yaml"}
    assert {name: media_type(name) for name in types} == types
    assert SAFETENSORS == "application/vnd.safetensors"
    assert [e["@id"] for e in of_type(graph, "FormalParameter") if not e.get("description")] == []
    # Settings are values of the parameters of the stage.
    values = {graph[i]["name"]: graph[i] for i in ids(graph["#job/preprocess/A"]["object"]) if i.startswith("#value/")}
    assert json.loads(values["bands"]["value"]) == ["blue", "red"]
    assert values["chunk"]["value"] == 32
    parameter = graph[ids(values["chunk"]["exampleOfWork"])[0]]
    assert (parameter["@id"], parameter["additionalType"]) == ("#parameter/preprocess/chunk", "Integer")
    assert parameter["defaultValue"] == 256
    assert parameter["description"].startswith("edge of a chunk")
    assert "#parameter/preprocess/chunk" in ids(graph[ids(graph["#job/preprocess/A"]["instrument"])[0]]["input"])
    assert "#parameter/search/url" not in graph, "a setting without a value is not in the crate"


def test_what_jobs_exchange_is_one_entity_with_its_checksum_and_size(project: Project, graph: Entities) -> None:
    store = project.results / "tiles/A.zarr"
    tiles, rows = f"#sha256/{digest(store)[:16]}", read_json(store / "manifest.json")["files"]
    assert ids(graph["#job/preprocess/A"]["result"]) == [tiles]
    assert tiles in ids(graph["#job/split"]["object"])
    assert "all.zarr/" in ids(graph["#job/split"]["object"])
    assert ids(graph["#job/label"]["result"]) == ["all.zarr/"]
    assert ids(graph["#job/search"]["result"]) == ["scenes/", "grid.json", "selection.json"]
    assert "scenes/A.geojson" in ids(graph["#job/fetch/A"]["object"])
    assert ids(graph["scenes/"]["hasPart"]) == ["scenes/A.geojson", "scenes/B.geojson"]
    # A store is one entity, and never its chunks.
    assert [i for i in graph if i.startswith("all.zarr")] == ["all.zarr/"]
    entity = {"@type": "Dataset", "name": "A.zarr", "sha256": digest(store), "description": f"{len(rows)} files"}
    assert graph[tiles].items() >= (entity | {"contentSize": str(sum(row["size"] for row in rows))}).items()


def test_data_flow_from_stage_to_stage_and_from_the_user(graph: Entities) -> None:
    ends = ("sourceParameter", "targetParameter")
    flows = {" ".join(ids(c[end])[0] for end in ends) for c in of_type(graph, "ParameterConnection")}
    assert flows >= {
        "#parameter/preprocess/tiles #parameter/split/tiles",
        "#parameter/search/items #parameter/fetch/item",
        "#parameter/workflow-in/source #parameter/label/source",
        "#parameter/split/chips #parameter/workflow-out/split.chips",
    }
    inputs = {graph[i]["name"] for i in ids(graph["#run"]["object"])}
    assert inputs == {"catalog", "truth.tif", "configuration of the run"}
    assert set(ids(graph["#run"]["result"])) == {"all.zarr/", "grid.json", "selection.json", "split.json", "scenes/"}


def test_scenes_are_cited_with_licence_origin_and_credit(crate: Path, graph: Entities) -> None:
    assert ids(graph["./"]["isBasedOn"]) == ["#scene/A", "#scene/B"]
    scene = graph["#scene/A"]
    assert ids(scene["license"]) == [LICENCE]
    assert ids(scene["isBasedOn"]) == ["https://example.org/items/A"]
    assert scene["creditText"] == "Contains Copernicus data; A mirror"
    doi, name = "https://doi.org/10.5270/S2_-znk9xsj", CITED["sci:citation"]
    assert graph[ids(scene["citation"])[0]] == {"@id": doi, "@type": "CreativeWork", "name": name, "url": doi}
    assert [graph[provider]["name"] for provider in ids(scene["provider"])] == ["ESA"]
    readme = (crate / "README.md").read_text()
    assert [text for text in (f"Cite: {name}", "Data by ESA") if text not in readme] == []
    assert ids(graph["scenes/A.geojson"]["about"]) == ["#scene/A"]
    assert graph["./"]["temporalCoverage"] == "2023-08-01T10:00:00Z/2023-08-01T10:00:00Z"
    south, west, north, east = map(float, graph["#area/box"]["box"].split())
    assert 46 < south < north < 46.1
    assert 15 <= west < east < 15.1


@pytest.mark.exhaustive
def test_a_failed_job_is_a_failed_action_with_its_error(project: Project, tmp_path: Path, cache: Path) -> None:
    records = [*project.records, project.failed]
    crate = project.crate(tmp_path / "crate", records=records)
    graph = entities(crate)
    failed = [e for e in of_type(graph, "CreateAction") if e["actionStatus"].endswith("FailedActionStatus")]
    # The job, and with it the run.
    (job,) = (e for e in failed if e["@id"] != "#run")
    assert len(failed) == 2
    assert "scene A has no band swir" in job["error"]
    assert "result" not in job
    assert "| preprocess | 3 | 1 |" in (crate / "README.md").read_text()
    assert issues(crate, cache) == []


# Redaction


def test_no_path_user_or_secret_leaves_the_machine(project: Project, crate: Path, tmp_path: Path) -> None:
    failing = project.crate(tmp_path / "crate", records=[*project.records, project.failed])
    for folder in (crate, failing):
        for name in ("ro-crate-metadata.json", "README.md"):
            text = (folder / name).read_text()
            for word in (str(project.root.parents[3]), f"/{HOME}", *USER.split(), "/tmp", TOKEN, "grace:pw"):
                assert word not in text, (name, word)


PART = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Cc", "Cs")), min_size=1)


@example(["?", "0"], False)
@example(["home", "?"], True)
@given(st.lists(PART.filter(lambda part: part not in (".", "..")), min_size=2, max_size=5), st.booleans())
def test_of_an_absolute_path_only_the_last_name_is_shown(parts: list[str], is_joined: bool) -> None:
    path = "/secret-home/" + "/".join(parts)
    arguments = [f"--item={path}"] if is_joined else ["--item", path]
    assert "secret-home" not in redact_command(["eopipe", "fetch", *arguments])
    assert "secret-home" not in redact_argument(path)
    assert "secret-home" not in redact_paths(f"cannot read {path}: no such file", arguments)


@pytest.mark.parametrize(
    ("message", "redacted"),
    [
        ("cannot read /home/ada/x.json, gone", "cannot read x.json, gone"),
        ("see https://ada:pw@host:8/a?token=1#x", "see https://host:8/a"),
        ("file:///home/ada/x.tif", "x.tif"),
        ("../../ada/x.tif ~ada/y.tif", "x.tif y.tif"),
        ("url: /a.tif?sig=x/y and /home/?z", "url: a.tif and ."),
        ("1/2 of results/a and ./b", "1/2 of results/a and ./b"),
        ("dates ../2020-05-01, 2020-05-01/..", "dates ../2020-05-01, 2020-05-01/.."),
    ],
)
def test_redaction_keeps_the_rest_of_a_message(message: str, redacted: str) -> None:
    assert redact_paths(message) == redacted


# Its files


def test_two_crates_of_one_run_are_the_same_bytes(project: Project, crate: Path, tmp_path: Path) -> None:
    ports = {"records": [*reversed(project.records), project.records[0]], "scenes": project.items[::-1]}
    second = project.crate(tmp_path / "crate", "--engine-version", "9.27.1", **ports)
    assert digest(second) == digest(crate)


def test_the_payload_takes_no_space_and_is_whole(project: Project, crate: Path, run: Run) -> None:
    for name in ("split.json", "labels/all.zarr/zarr.json"):
        copy = crate / name.removeprefix("labels/")
        assert copy.stat().st_ino == (project.results / name).stat().st_ino
    # An editor may write to it.
    assert (crate / "Snakefile").stat().st_ino != (project.root / "Snakefile").stat().st_ino
    assert run("verify", crate).code == 0


def test_a_new_run_leaves_the_crate_as_it_was(project: Project, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(project.results, results)
    crate = project.crate(tmp_path / "crate", payload=[results / "split.json"])
    before = sha256(crate / "split.json")
    project.split(results, chip=32)
    assert sha256(results / "split.json") != before
    assert sha256(crate / "split.json") == before


def test_where_nothing_can_be_linked_the_payload_is_copied(
    project: Project, crate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("links are not supported")

    monkeypatch.setattr("os.link", refuse)
    assert digest(project.crate(tmp_path / "crate", "--engine-version", "9.27.1")) == digest(crate)


def test_links_of_an_engine_and_equal_names_of_two_jobs_are_told_apart(project: Project, tmp_path: Path) -> None:
    # An engine stages outputs of two jobs with the same name in folders with arbitrary names.
    staged = [tmp_path / "x1/tiles.zarr", tmp_path / "x2/tiles.zarr"]
    for folder, scene in zip(staged, "BA", strict=True):
        shutil.copytree(project.results / f"tiles/{scene}.zarr", folder)
    link = tmp_path / "x1/grid.json"
    link.symlink_to(project.results / "grid.json")
    crate = project.crate(tmp_path / "crate", payload=[*staged, link])
    assert not (crate / "grid.json").is_symlink()
    assert sha256(crate / "grid.json") == sha256(link)
    for scene in "AB":
        assert digest(crate / f"preprocess/{scene}/tiles.zarr") == digest(project.results / f"tiles/{scene}.zarr")
    assert ids(entities(crate)["#job/preprocess/A"]["result"]) == ["preprocess/A/tiles.zarr/"]


def test_different_files_that_no_job_distinguishes_are_refused(project: Project, tmp_path: Path, run: Run) -> None:
    folders = [tmp_path / parent / "notes" for parent in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "note.md").write_text(str(folder))
    words = ("--records", *project.records, "--scenes", *project.items, "--workflow", project.root / "Snakefile")
    run("crate", *words, "--crate", tmp_path / "c", "--payload", *folders).ends(3, "the same file of the crate")
    assert not (tmp_path / "c").exists()


def test_other_folders_scenes_of_the_web_and_unused_ones_come_with_manifest_url_and_reason(
    project: Project, tmp_path: Path, run: Run
) -> None:
    item, split = read_json(project.results / "items/A.geojson"), read_json(project.results / "split.json")
    item["links"].append({"rel": "self", "href": f"https://example.org/stac/A?{TOKEN}"})
    write_json(tmp_path / "A.geojson", item)
    row = {"scene": "B", "valid": 0.0, "reason": "asset red is XML"}
    write_json(tmp_path / "split.json", split | {"left_out": [row]})
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/one.smk").write_text("rule one:\n")
    ports = {"payload": [tmp_path / "split.json", tmp_path / "rules"], "scenes": [tmp_path / "A.geojson"]}
    graph = entities(crate := project.crate(tmp_path / "crate", **ports))
    assert ids(graph["./"]["isBasedOn"]) == ["https://example.org/stac/A"]
    assert graph["split.json"]["description"] == "Scene B is not used: asset red is XML."
    assert ids(graph["rules/"]["hasPart"]) == ["rules/one.smk"]
    assert run("verify", crate / "rules").code == 0
    assert not (tmp_path / "rules/manifest.json").exists()


def test_a_thousand_scenes_stay_below_ten_megabytes(tmp_path: Path) -> None:
    sizes = []
    for scenes in (50, 100):
        crate = synthetic_run(tmp_path / f"run-{scenes}", scenes).crate(tmp_path / f"crate-{scenes}")
        assert len(of_type(entities(crate), "ControlAction")) == 2 * scenes + 8
        sizes.append(sum(path.stat().st_size for path in crate.rglob("*") if path.is_file()))
    # Every scene adds the same.
    assert sizes[1] + 900 * (sizes[1] - sizes[0]) / 50 < 10e6


def test_jobs_of_other_code_have_tools_of_their_own_and_engines_a_version(project: Project, tmp_path: Path) -> None:
    paths = [tmp_path / path.name for path in project.records]
    for path, source in zip(paths, project.records, strict=True):
        record = read_json(source)
        changed = path.name == "A.zarr.run.json"
        record["software"] |= {"git": "a" * 40 + ("+" if changed else ""), "numpy": "1.0" if changed else "2.0"}
        record["project"] = "b" * 40 + ("+" if changed else "")
        record["place"] |= {"job": "pbs:12", "processor": "EPYC", "accelerators": ["H200", "H200"], "cores": 64}
        write_json(path, record | {"engine": "cwltool 3.3.1"})
    graph = entities(project.crate(tmp_path / "crate", "--engine", "cwl", records=paths))
    tools = {name: graph[ids(graph[f"#job/preprocess/{name}"]["instrument"])[0]] for name in "AB"}
    assert tools["A"]["identifier"] == f"commit {'a' * 40}, with changed files"
    assert tools["B"]["identifier"] == f"commit {'a' * 40}"
    projects = f"commit {'b' * 40}, commit {'b' * 40}, with changed files"
    assert graph["config/config.yaml"]["version"] == projects
    numpy = {name: [i for i in ids(tool["softwareRequirements"]) if "numpy" in i] for name, tool in tools.items()}
    assert numpy == {"A": ["https://numpy.org/#1.0"], "B": ["https://numpy.org/#2.0"]}
    job, engine = graph["#job/preprocess/A"], graph["https://www.commonwl.org/"]
    assert graph[ids(job["location"])[0]]["name"].split(", ", 1)[1] == "EPYC, 64 cores, 2 x H200"
    assert job["identifier"] == "pbs:12"
    assert (engine["softwareVersion"], engine["description"]) == ("3.3.1", "Workflow engine: cwltool")


@pytest.mark.exhaustive
def test_all_authors_and_funders_are_in_the_crate(project: Project, tmp_path: Path, cache: Path) -> None:
    others = ("--coauthors", "Mary Ward; Lab", "Grace Hopper 0000-0002-1694-233X; Navy", "--organization", "Lab")
    funding = ("--funding", "https://ror.org/03wd9za21: 4000/26", "A foundation", "https://ror.org/03wd9za21: 77")
    crate = project.crate(tmp_path / "crate", "--author", "Ada Lovelace", *others, *funding)
    graph = entities(crate)
    names = [graph[author]["name"] for author in ids(graph["./"]["author"])]
    assert names == ["Ada Lovelace", "Mary Ward", "Grace Hopper"]
    assert ids(graph["./"]["author"])[2] == "https://orcid.org/0000-0002-1694-233X"
    assert ids(graph["./"]["funder"]) == ["https://ror.org/03wd9za21", "#funder/A%20foundation"]
    assert graph["https://ror.org/03wd9za21"]["description"] == "Grant 4000/26, 77."
    assert "By Ada Lovelace, Mary Ward, Grace Hopper, Lab." in (crate / "README.md").read_text()
    assert graph[ids(graph["https://orcid.org/0000-0002-1694-233X"]["affiliation"])[0]]["name"] == "Navy"
    messages = {issue.split(maxsplit=2)[2] for issue in issues(crate, cache, "RECOMMENDED")}
    assert messages == {"The organization SHOULD have a URL."}, "names alone have none"


# Invalid inputs


def test_every_file_that_is_not_a_run_record_is_named(project: Project, tmp_path: Path, run: Run) -> None:
    for name in ("one.json", "two.json"):
        write_json(tmp_path / name, {"stage": "search"})
    records = [tmp_path / "one.json", project.records[0], tmp_path / "two.json"]
    payload = ("--payload", project.results / "grid.json", "--scenes", *project.items)
    workflow = ("--workflow", project.root / "Snakefile", "--crate", tmp_path / "crate")
    run("crate", "--records", *records, *payload, *workflow).ends(3, "one.json", "two.json")
    assert not (tmp_path / "crate").exists()


@pytest.mark.parametrize(
    ("flag", "word"), [("--orcid", "1234"), ("--ror", "lab"), ("--license", "my own"), ("--title", "")]
)
def test_an_invalid_option_is_refused_with_nothing_made(project: Project, tmp_path: Path, flag: str, word: str) -> None:
    assert not project.crate(tmp_path / "crate", flag, word, code=2).exists()


def test_a_foreign_folder_is_never_replaced_by_a_crate(project: Project, tmp_path: Path, run: Run) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/thesis.txt").write_text("years")
    project.crate(tmp_path / "thesis", code=2)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.txt"]


def test_a_job_of_a_renamed_stage_is_read_and_a_size_that_is_no_number_refused(
    tmp_path: Path,
) -> None:
    folder = synthetic_run(tmp_path, 1).crate(tmp_path / "crate")
    jobs, path = read_crate(folder).jobs, folder / "ro-crate-metadata.json"
    assert "report" in {job.stage for job in jobs}
    text = path.read_text()
    for name in ("#job/", "#parameter/", "#tool/", "#step/"):
        text = text.replace(f"{name}report", f"{name}describe")
    path.write_text(text)
    assert read_crate(folder).jobs == jobs
    metadata = json.loads(text)
    entity = next(e for e in metadata["@graph"] if "sha256" in e and not e["@id"].startswith(("#", "./")))
    entity["contentSize"] = "--x"
    path.write_text(json.dumps(metadata))
    with pytest.raises(BadInputError, match="another structure than the metadata that eopipe writes"):
        read_crate(folder)


def test_a_recorded_command_is_read_without_the_options_that_are_gone() -> None:
    words = ["--metrics", "m.json", "--baseline-pixels", "-1", "--classes", "a.tif", "b.tif", "--seed=3"]
    words += ["--tiles", "a.zarr", "--labels", "l.zarr", "--gone", "x", "y"]
    definition, values = recorded_command(["eopipe", "evaluate", *words])
    assert definition.name == "evaluate"
    assert values["classes"] == (Path("a.tif"), Path("b.tif"))
    assert (values["tiles"], values["labels"]) == ((Path("a.zarr"),), (Path("l.zarr"),))
    of_report = ["--model", "model", "--classes", "a.tif", "--probabilities", "p.tif", "--tiles", "a.zarr"]
    definition, values = recorded_command(["eopipe", "describe", *of_report, "--page", "r.html", "--picture", "m.png"])
    assert (definition.name, values["page"]) == ("report", Path("r.html"))
    for before, reducer in {"promote --rung r.json --count 2": "halving", "combine --model m": "mean"}.items():
        definition, values = recorded_command(["eopipe", *before.split(), "--models", "a", "b"])
        assert (definition.name, values["reducer"], values["models"]) == ("choose", reducer, (Path("a"), Path("b")))
    with pytest.raises(IntegrityError, match="no run record with its command"):
        recorded_command(["eopipe", "rate"])


@pytest.mark.parametrize("text", ["search: [", "train: {seed: " + "9" * 5001 + "}", "[" * 5000, "\xff"])
def test_a_crate_with_a_broken_config_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_bytes(text.encode("latin-1"))
    crate = RunCrate(tmp_path, {}, (), frozenset())
    with pytest.raises(BadInputError, match=r"config\.yaml, the config of the crate, is not valid YAML: "):
        find_user_inputs(crate, tmp_path, [])


def job_record(stage: str, **data: list[dict[str, Any]]) -> RunRecord:
    """A job that read and wrote the given files and folders."""
    texts = dict.fromkeys(("version", "error", "start", "end"), "")
    place = {"system": "", "machine": "", "cores": 1, "job": ""}
    empty: dict[str, Any] = {"arguments": [], "settings": {}, "inputs": [], "outputs": [], "usage": {}, "software": {}}
    return RunRecord.model_validate({"stage": stage, "status": "completed", "place": place} | texts | empty | data)


def test_an_input_is_found_by_its_content_at_the_path_that_its_job_recorded(tmp_path: Path) -> None:
    path = tmp_path / "data/by/year/2018/labels.tif"
    path.parent.mkdir(parents=True)
    path.write_text("labels")
    data = {"port": "source", "name": path.name, "folder": False, "bytes": 6, "files": 1, "sha256": sha256(path)}
    job = RecordedJob(job_record("label", inputs=[data | {"path": "by/year/2018/labels.tif"}]), "")
    crate = RunCrate(tmp_path / "crate", {}, (job,), frozenset())
    assert find_user_inputs(crate, tmp_path / "data", [job]) == {data["sha256"]: path}
    path.write_text("others")
    with pytest.raises(BadInputError, match=r"does not contain these inputs: labels\.tif \(sha256 "):
        find_user_inputs(crate, tmp_path / "data", [job])


@pytest.mark.parametrize(("name", "port", "reducer"), [("promote", "rung", "halving"), ("combine", "model", "mean")])
def test_a_job_of_before_runs_again_as_the_present_stage(name: str, port: str, reducer: str, tmp_path: Path) -> None:
    output = {"port": port, "name": "made", "folder": False, "bytes": 1, "files": 1, "sha256": "0"}
    jobs = (RecordedJob(job_record(name, outputs=[output]), ""),)
    again = CrateRerun(RunCrate(tmp_path / "crate", {}, jobs, frozenset()), tmp_path / "again")
    words = again._arguments(again.jobs[0], {port: tmp_path / "made"})
    assert words == ["choose", f"--{port}", str(tmp_path / "made"), "--reducer", reducer]


def test_of_two_jobs_with_equal_outputs_each_is_compared_with_the_crate_and_not_with_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(folder: Path, text: str) -> str:
        folder.mkdir(parents=True)
        (folder / "weights").write_text(text)
        write_manifest(folder)
        return digest(folder)

    model = {"port": "model", "name": "model", "folder": True, "bytes": 1, "files": 1}
    model["sha256"] = write(tmp_path / "crate/model", "as before")
    write_manifest(tmp_path / "crate")
    entity = {"@id": "model/", "@type": "Dataset", "name": "model", "sha256": model["sha256"]}
    jobs = tuple(RecordedJob(job_record("train", outputs=[model]), name) for name in ("trial-1", "trial-2"))
    again = CrateRerun(RunCrate(tmp_path / "crate", {"model/": entity}, jobs, frozenset()), tmp_path / "again")
    do = lambda job, *_: write(tmp_path / "again/train" / job.label / "model", "otherwise")  # noqa: E731
    monkeypatch.setattr("eopipe.provenance.rerun._execute", do)
    again.run(cores=1)
    assert [comparison.files for comparison in again.comparisons] == [("weights",), ("weights",)]
