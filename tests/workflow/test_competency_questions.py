"""The competency questions of the Workflow Run RO-Crate profiles, as SPARQL queries on the crates of whole runs.

CQ1 to CQ11 are those of https://www.researchobject.org/workflow-run-crate/requirements.
"""

import json
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
from offline_rocrate import context
from projects import DAYS, Project
from rdflib import Graph
from rdflib.query import ResultRow

PREFIXES = """
PREFIX s: <http://schema.org/>
PREFIX bio: <https://bioschemas.org/>
PREFIX port: <https://bioschemas.org/ComputationalWorkflow#>
PREFIX code: <https://codemeta.github.io/terms/>
PREFIX run: <https://w3id.org/ro/terms/workflow-run#>
"""
# The run of the workflow, and a job of a stage.
RUN = "?root s:mainEntity ?workflow . ?run a s:CreateAction ; s:instrument ?workflow ."
TRAIN = '?job a s:CreateAction ; s:instrument ?tool . ?tool s:name "eopipe train" .'


class QueryableCrate:
    """A crate that answers SPARQL queries."""

    def __init__(self, crate: Path) -> None:
        metadata = json.loads((crate / "ro-crate-metadata.json").read_text())
        metadata["@context"] = [context()["@context"], *metadata["@context"][1:]]
        with warnings.catch_warnings():
            # A warning inside of rdflib.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.graph = Graph().parse(data=json.dumps(metadata), format="json-ld", publicID="https://crate.example/")

    def __call__(self, query: str) -> list[tuple[str, ...]]:
        rows = self.graph.query(f"{PREFIXES} SELECT DISTINCT {query}")
        return sorted(tuple(str(value) for value in row) for row in rows if isinstance(row, ResultRow))


@pytest.fixture(scope="module", params=["snakemake", "cwl"])
def ask(request: pytest.FixtureRequest) -> QueryableCrate:
    if request.param == "cwl":
        return QueryableCrate(request.getfixturevalue("by_cwl") / "crate")
    finished: Project = request.getfixturevalue("finished")
    return QueryableCrate(finished.results / "crate")


def test_cq1_no_container_was_used_and_none_is_recorded(ask: QueryableCrate) -> None:
    assert ask("?image WHERE { ?job run:containerImage ?image }") == []


def test_cq2_every_job_has_its_memory_processor_time_and_machine(ask: QueryableCrate) -> None:
    jobs = ask(f"?job WHERE {{ {RUN} ?job a s:CreateAction . FILTER (?job != ?run) }}")
    rows = ask(
        """?job ?memory ?seconds ?place WHERE {
        ?job run:resourceUsage [ s:name "max_rss_mb" ; s:value ?memory ], [ s:name "cpu_s" ; s:value ?seconds ] ;
             s:location/s:name ?place }"""
    )
    assert len(jobs) > 2 * len(DAYS)
    assert [(row[0],) for row in rows] == jobs
    assert all(10 < float(row[1]) < 1e6 and float(row[2]) > 0 and "cores" in row[3] for row in rows)


def test_cq3_the_settings_of_a_job_are_recorded_one_by_one(ask: QueryableCrate) -> None:
    value = "?setting a s:PropertyValue ; s:name ?name ; s:value ?value"
    rows = dict(ask(f"?name ?value WHERE {{ {TRAIN} ?job s:object ?setting . {value} }}"))
    assert (rows["epochs"], rows["batch"], rows["width"]) == ("6", "8", "8")


def test_cq4_a_step_names_the_software_that_it_used(ask: QueryableCrate) -> None:
    needs = "?tool s:softwareRequirements [ s:name ?name ; s:softwareVersion ?version ]"
    rows = dict(ask(f"?name ?version WHERE {{ {TRAIN} {needs} }}"))
    assert {"python", "numpy", "torch", "zarr"} <= set(rows)


def test_cq5_and_cq6_jobs_and_run_have_a_start_and_an_end(ask: QueryableCrate) -> None:
    job = ask(f"?start ?end WHERE {{ {TRAIN} ?job s:startTime ?start ; s:endTime ?end }}")
    run = ask(f"?start ?end WHERE {{ {RUN} ?run s:startTime ?start ; s:endTime ?end }}")
    assert run[0][0] <= job[0][0] <= job[0][1] <= run[0][1]
    duration = ask(
        f"?length WHERE {{ {RUN} ?run s:startTime ?start ; s:endTime ?end . "
        "BIND (<http://www.w3.org/2001/XMLSchema#dateTime>(?end) - <http://www.w3.org/2001/XMLSchema#dateTime>(?start) "
        "AS ?length) }"
    )
    assert duration
    assert duration[0][0] != str(timedelta(0))


def test_cq7_run_and_jobs_have_their_status(ask: QueryableCrate) -> None:
    rows = ask("?status WHERE { ?action s:actionStatus ?status }")
    assert rows == [("http://schema.org/CompletedActionStatus",)]


def test_cq8_the_run_has_its_inputs_and_results(ask: QueryableCrate) -> None:
    inputs = {row[0] for row in ask(f"?name WHERE {{ {RUN} ?run s:object/s:name ?name }}")}
    assert {"sample", "tree_cover_density_2018.tif"} <= inputs
    results = {row[0] for row in ask(f"?name WHERE {{ {RUN} ?run s:result/s:name ?name }}")}
    assert {"metrics.json", "model.onnx", "classes.tif", "report.html"} <= results
    assert not {name for name in results if name.endswith(".zarr")}, "tiles are intermediate data"


def test_cq9_each_step_names_the_version_and_the_url_of_its_code(ask: QueryableCrate) -> None:
    rows = ask(
        f"""?version ?url WHERE {{ {TRAIN} ?step a s:HowToStep ; s:workExample ?tool .
        ?tool s:softwareVersion ?version ; s:url ?url }}"""
    )
    assert len(rows) == 1
    assert rows[0][1].endswith(f"/blob/v{rows[0][0]}/eopipe/stages/train.py")


def test_cq10_the_workflow_file_that_wraps_the_tools_is_in_the_crate(ask: QueryableCrate) -> None:
    rows = ask(
        f"?language ?workflow WHERE {{ {RUN} ?workflow s:hasPart ?tool ; s:programmingLanguage/s:name ?language }}"
    )
    assert rows in (
        [("Snakemake", "https://crate.example/Snakefile")],
        [("Common Workflow Language", "https://crate.example/pipeline.cwl")],
    )


def test_cq11_parameters_are_connected_from_tool_to_tool_and_to_the_workflow(ask: QueryableCrate) -> None:
    rows = ask(
        """?from ?to WHERE { ?connection a run:ParameterConnection ;
        run:sourceParameter ?from ; run:targetParameter ?to }"""
    )
    base = "https://crate.example/#parameter"
    flows = {tuple(end.removeprefix(base) for end in row) for row in rows}
    assert {("/train/model", "/predict/model"), ("/preprocess/tiles", "/train/tiles")} <= flows
    assert ("/workflow-in/source", "/label/source") in flows
    assert ("/train/model", "/workflow-out/train.model") in flows
