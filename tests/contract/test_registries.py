"""The files that registries, citation tools, GitHub and pre-commit read pass the schemas and rules of these."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from offline_rocrate import issues, seed

from dev.sync import derived
from eopipe import __version__

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The terms of CodeMeta 3.0 for software (codemeta.github.io/terms) that apply to this project.
CODEMETA = {
    "@context @type author codeRepository contributor description developmentStatus issueTracker keywords license",
    "name operatingSystem programmingLanguage readme runtimePlatform softwareRequirements version identifier funding",
}
# .dockstore.yml 1.2 as Dockstore's own classes read it: YamlWorkflow and its constraints.
ENTRY_NAME, ORCID = r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*", r"\d{4}-\d{4}-\d{4}-\d{3}[\dX]"
SUBCLASSES = {"CWL", "WDL", "NFL", "GALAXY", "SMK"}
FIELDS = {"name", "subclass", "primaryDescriptorPath", "testParameterFiles", "readMePath", "topic", "authors"}
# The elements of an issue form of GitHub, and what each must have.
ELEMENTS = {
    "markdown": {"value"},
    "textarea": {"label"},
    "input": {"label"},
    "dropdown": {"label", "options"},
    "checkboxes": {"label", "options"},
}
FORMS = [path for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_citation_file_agrees_with_the_package() -> None:
    cff = read("CITATION.cff")
    assert (cff["title"], str(cff["version"]), cff["license"]) == (PROJECT["name"], __version__, PROJECT["license"])
    assert cff["keywords"] == PROJECT["keywords"]
    assert [author["name"] for author in cff["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert cff["repository-code"] == PROJECT["urls"]["Source"]
    assert cff["abstract"] == PROJECT["description"]


def test_the_citation_file_is_valid_by_the_schema_of_its_format() -> None:
    cff_schema = json.loads((ROOT / "tests/schemas/cff-v1.2.0.json").read_text())
    # Dates are strings in the schema.
    cff = yaml.load((ROOT / "CITATION.cff").read_text(), Loader=yaml.BaseLoader)
    jsonschema.validate(cff, cff_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(cff | {"license": "not a licence"}, cff_schema)


def test_codemeta_agrees_with_the_package_and_uses_terms_of_codemeta() -> None:
    codemeta = read("codemeta.json")
    assert set(codemeta) <= set(" ".join(CODEMETA).split())
    assert (codemeta["name"], codemeta["version"], codemeta["description"]) == (
        PROJECT["name"],
        __version__,
        PROJECT["description"],
    )
    assert codemeta["license"] == f"https://spdx.org/licenses/{PROJECT['license']}"
    assert codemeta["softwareRequirements"] == PROJECT["dependencies"]
    assert [author["name"] for author in codemeta["author"]] == [author["name"] for author in PROJECT["authors"]]


@pytest.fixture(scope="module")
def listed_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that the crate of the checkout lists."""
    folder = tmp_path_factory.mktemp("checkout") / "eopipe"
    entities = {entity["@id"]: entity for entity in read("ro-crate-metadata.json")["@graph"]}
    parts = [part["@id"] for part in entities["./"]["hasPart"]]
    for name in ("ro-crate-metadata.json", *parts):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    assert {"Snakefile", "cwl/pipeline.cwl", "README.md", "LICENSE"} <= set(parts)
    return folder


@pytest.mark.exhaustive
def test_workflowhub_can_take_the_checkout_as_a_workflow_ro_crate(listed_files: Path, tmp_path: Path) -> None:
    cache = seed(tmp_path / "cache")
    assert issues(listed_files, cache, "RECOMMENDED", "workflow-ro-crate") == []
    (listed_files / "Snakefile").unlink()
    assert issues(listed_files, cache, "REQUIRED", "workflow-ro-crate"), "a missing workflow is reported"


def test_dockstore_finds_a_workflow_behind_every_entry() -> None:
    dockstore = read(".dockstore.yml")
    assert re.fullmatch(r"version: 1\.2", (ROOT / ".dockstore.yml").read_text().splitlines()[1])
    assert set(dockstore) == {"version", "workflows"}
    names = [entry["name"] for entry in dockstore["workflows"]]
    assert len(set(names)) == len(names)
    for entry in dockstore["workflows"]:
        assert set(entry) <= FIELDS
        assert re.fullmatch(ENTRY_NAME, entry["name"])
        assert len(entry["name"]) <= 256
        assert len(entry["topic"]) <= 250
        assert entry["subclass"] in SUBCLASSES
        for path in (entry["primaryDescriptorPath"], entry["readMePath"], *entry.get("testParameterFiles", [])):
            assert path.startswith("/"), "paths are absolute in the repository"
            assert (ROOT / path[1:]).is_file(), path
        for author in entry["authors"]:
            assert author.get("name") or re.fullmatch(ORCID, author["orcid"])
    # Dockstore accepts a Snakemake workflow only at this path, and only with the catalogue's file.
    smk = next(entry for entry in dockstore["workflows"] if entry["subclass"] == "SMK")
    assert smk["primaryDescriptorPath"] == "/workflow/Snakefile"
    assert (ROOT / ".snakemake-workflow-catalog.yml").is_file()


def test_the_snakemake_catalogue_can_list_the_workflow_for_standardized_usage() -> None:
    assert (ROOT / "workflow/Snakefile").is_file()
    assert list((ROOT / "workflow/rules").glob("*.smk"))
    assert "configfile" in (ROOT / "config/README.md").read_text()
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    usage = read(".snakemake-workflow-catalog.yml")["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert set(usage["mandatory-flags"]) == {"desc", "flags"}
    assert isinstance(usage["mandatory-flags"]["flags"], (str, list))
    assert set(usage["software-stack-deployment"]) == {"conda", "apptainer", "apptainer+conda"}
    assert all(isinstance(value, bool) for value in (*usage["software-stack-deployment"].values(), usage["report"]))
    assert not usage["software-stack-deployment"]["conda"], "eopipe is in no package index"


def test_the_environment_of_conda_takes_eopipe_of_this_version_from_its_own_repository() -> None:
    # In a package index its name is free, so that anyone could take it.
    python, git, pip, through_pip = read("workflow/envs/eopipe.yaml")["dependencies"]
    assert (python, git, pip) == ("python=3.11", "git", "pip")
    assert through_pip["pip"] == [f"eopipe @ git+{PROJECT['urls']['Source']}@v{__version__}"]
    assert f'tag="v{__version__}"' in (ROOT / "config/README.md").read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_github_requires(path: Path) -> None:
    form = read(str(path))
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "body", "labels", "title"}
    for element in form["body"]:
        assert ELEMENTS[element["type"]] <= set(element["attributes"])
        assert set(element) <= {"type", "id", "attributes", "validations"}
    ids = [element["id"] for element in form["body"] if element["type"] != "markdown"]
    labels = [element["attributes"]["label"] for element in form["body"] if element["type"] != "markdown"]
    assert len(set(ids)) == len(set(labels)) == len(ids) > 0


def test_a_vulnerability_is_no_public_issue() -> None:
    assert [path.stem for path in FORMS] == ["bug", "question"]
    config = read(".github/ISSUE_TEMPLATE/config.yml")
    assert not config["blank_issues_enabled"]
    (link,) = config["contact_links"]
    assert link["url"] == f"{PROJECT['urls']['Source']}/security/advisories/new"


def test_the_ci_of_a_fork_runs_what_ours_runs_and_may_only_read() -> None:
    # In the schema of version 1.1 the key `on` is a boolean.
    workflow = yaml.load((ROOT / ".github/workflows/ci.yml").read_text(), Loader=yaml.BaseLoader)
    assert set(workflow["on"]) == {"push", "pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    # The Debian of the packages that `make test-packages` names, with Python 3.11.
    assert job["container"]["image"] == "debian:12"
    assert "postgresql-15-postgis-3" in (ROOT / "Makefile").read_text()
    assert 0 < int(job["timeout-minutes"]) <= 360
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions), actions


def test_the_hooks_of_pre_commit_are_tools_of_the_checkout() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    hooks = {hook["id"]: hook for hook in local["hooks"]}
    entries = ["ruff check --force-exclude", "ruff format --force-exclude", "python -m dev.sync --check"]
    assert [hook["entry"] for hook in hooks.values()] == [f".venv/bin/{entry}" for entry in entries]
    assert {hook["language"] for hook in hooks.values()} == {"system"}
    assert hooks["sync"]["pass_filenames"] is False
    # Every file that `make sync` writes starts the check.
    assert all(re.match(hooks["sync"]["files"], str(path.relative_to(ROOT))) for path in derived(ROOT))


@pytest.mark.exhaustive
def test_the_workflow_of_the_catalogue_is_the_snakefile_of_the_checkout() -> None:
    plans = []
    for name in ("Snakefile", "workflow/Snakefile"):
        command = ["snakemake", "--snakefile", name, "--dry-run", "--forceall", "--quiet", "host", "--cores", "1"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        plans.append(sorted(re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", result.stdout, re.MULTILINE)))
    assert plans[0] == plans[1]
    assert {"search", "train", "crate", "all"} <= set(plans[1])
