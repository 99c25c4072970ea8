"""The page of other systems names each of them, and what a row offers instead exists."""

import re
from pathlib import Path

import pytest

import eopipe
from eopipe.cli import COMMANDS
from eopipe.contract import STAGES, stage

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/others.md").read_text()
SYSTEMS = """RPC; parameter server; asynchronous updates; tensor; hybrid parallelism; DeepSpeed; Lightning; Fabric;
Accelerate; Ray; Ray Tune; Optuna; AutoPyTorch; MosaicML; ColossalAI; Determined; Horovod; fairscale;
torchx; Varuna; FlexFlow; BigDL/Spark; TorchServe; Triton; KServe; Kubeflow; TensorRT; Airflow;
SageMaker; Vertex AI; Databricks; Kubernetes; PBS; LSF; MinIO; Pelican; Prometheus/Grafana; JupyterHub;
NVBoard; ROCm; oneCCL/XPU; MPS; TPU/IPU; MIG; TF32; Arvados; Weaver; Calrissian; cwl-airflow; cerise;
Covalent; COMPSs; Nextflow; looper/PEP; executorlib; pysqa; libEnsemble; Flux; pypiper; Embeddings; Notebooks;
Quantisation; Pruning; Distillation; 2:4 sparsity; Weight histograms; model graph in TensorBoard; DataParallel;
MPI backend; Distributed autograd; Gaudi; Azure; AWS Batch; Multi-tenancy; Flash; Bolts"""
# What is not a part of eopipe, or a result of `eopipe export`.
FOREIGN = {"AWS_ENDPOINT_URL", "cuda", "nn.Module", "osdf://", "pelican://", "model.onnx", "toil-cwl-runner"}
FOREIGN |= {"toil-cwl-runner --batchSystem slurm", "--profile slurm"}
TABLE = PAGE.partition("## Systems one by one")[2]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ")][1:]
ENTRIES = {name for group in COMMANDS.values() for name in group} | set(STAGES)
TRACKERS = {"tensorboard", "mlflow", "prometheus"}


def rows_of(name: str) -> int:
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)
    return len([row for row in ROWS if word.search(row[0])])


def test_each_system_has_one_row() -> None:
    assert [name for name in SYSTEMS.split(";") if rows_of(name.strip()) != 1] == []


def test_a_row_is_one_sentence_of_three_columns() -> None:
    for row in ROWS:
        assert len(row) == 3, row[0]
        text = re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "x", row[2])
        assert text.endswith("."), row[0]
        assert ". " not in text, row[0]


def exists(span: str) -> bool:
    """Whether a command, a setting with its value, or a file is a part of eopipe."""
    if span in FOREIGN or (ROOT / span).exists():
        return True
    if function := re.fullmatch(r"eopipe\.(\w+)", span):
        return function[1] in eopipe.API
    if command := re.fullmatch(r"eopipe (\w+)((?: \S+)*)", span):
        name, words = command[1], command[2].split()
        profiles = {path.name for path in (ROOT / "profiles").iterdir()}
        known = {
            "follow": {"--to", *TRACKERS},
            "profile": {*profiles, "--gpu", "TYPE"},
            "command": set(STAGES),
            "run": {"--cores", "8"},
        }
        return name in ENTRIES and set(words) <= known.get(name, set())
    if setting := re.fullmatch(r"(\w+)\.(\w+)(?:: (\S+))?", span):
        ports = {port.name: port for port in stage(setting[1]).ports} if setting[1] in STAGES else {}
        return setting[2] in ports
    return False


def test_what_the_page_offers_exists() -> None:
    assert [span for span in re.findall(r"`([^`]+)`", PAGE) if not exists(span)] == []


@pytest.mark.parametrize(
    "span", ["eopipe serve", "eopipe.embed", "train.rpc", "docs/none.md", "eopipe profile ray", "grafana.json"]
)
def test_what_does_not_exist_is_not_taken_for_a_part(span: str) -> None:
    assert not exists(span)


def test_the_page_is_linked_from_the_readme() -> None:
    assert "(docs/others.md)" in (ROOT / "README.md").read_text()
