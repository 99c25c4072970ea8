"""What jobs requested and used is read from their benchmarks, run records and Slurm's accounting."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eopipe.cli import main
from eopipe.clusters.slurm import seconds_of
from eopipe.clusters.usage import Requested, notes, parse_sacct, read_jobs, table, with_accounting
from eopipe.errors import UsageError
from eopipe.run.rules import volume

SHORT = ["s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time"]
EXTENDED = [*SHORT, "jobid", "rule_name", "wildcards", "params", "threads", "cpu_usage", "resources", "input_size_mb"]


def benchmark(results: Path, name: str, seconds: float, rss: object, cpu: object, **requested: Any) -> None:
    """A file as Snakemake writes it; the extended one where something was requested."""
    values = {"s": seconds, "h:m:s": "0:00:01", "max_rss": rss, "cpu_time": cpu}
    if requested:
        values |= {"threads": requested.pop("threads", 1), "resources": requested, "input_size_mb": {}}
    header = EXTENDED if requested else SHORT
    file = results / "benchmarks" / f"{name}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    row = "\t".join(str(values.get(column, "0.00")) for column in header)
    file.write_text("\t".join(header) + f"\n{row}\n")


def record(path: Path, stage: str, cpu: float, rss: float, slurm: str = "", status: str = "completed") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    usage, location = {"cpu_s": cpu, "max_rss_mb": rss}, {"job": f"slurm:{slurm}" if slurm else ""}
    path.write_text(json.dumps({"stage": stage, "status": status, "usage": usage, "place": location}))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two scenes and a training on two nodes."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results"
    benchmark(folder, "preprocess/a", 20.0, 300.5, 30.0, mem_mb=1500, runtime=10, threads=2)
    benchmark(folder, "preprocess/b.v1", 40.0, "NA", "NA", mem_mb=3000, runtime=20, threads=2)
    gpus = {"gres": "gpu:a100:4", "nodes": 2, "cpus_per_task": 8}
    benchmark(folder, "train", 600.0, 5.0, 1.0, mem_mb=9000, runtime=60, threads=4, knobs="--x 'y'", **gpus)
    record(folder / "tiles/a.zarr.run.json", "preprocess", 31.0, 290.0, "11")
    record(folder / "tiles/b.v1.zarr.run.json", "preprocess", 50.0, 410.0)
    record(folder / "model.run.json", "train", 2.0, 9.0, "12")
    (folder / "logs").mkdir()
    (folder / "logs/train.log").write_text("event=progress\nevent=device name=cuda memory_mb=2100\n")
    return folder


def test_requests_are_in_the_benchmark_and_peaks_there_or_in_the_run_record(results: Path) -> None:
    a, b, train = read_jobs(results)
    assert (a.rule, a.seconds, a.memory_mb, a.cpu_s, a.slurm_job) == ("preprocess", 20.0, 300.5, 31.0, "11")
    assert a.requested == Requested(1500, 10, 2, 0, 1)
    # It ended before Snakemake looked; its name has a dot.
    assert (b.memory_mb, b.cpu_s) == (410.0, 50.0)
    assert train.requested == Requested(9000, 60, 8, 4, 2)
    assert train.gpu_mb == 2100


def test_a_training_over_nodes_claims_no_memory_that_was_not_measured(results: Path) -> None:
    jobs = read_jobs(results)
    assert (jobs[2].memory_mb, jobs[2].cpu_s) == (None, None)
    assert "On many nodes memory and CPUs of train need Slurm's accounting." in notes(jobs, "x")


def test_an_ordinary_benchmark_has_what_was_used_and_the_request_is_unknown(tmp_path: Path) -> None:
    benchmark(tmp_path, "split", 3.0, 100.0, 2.0)
    jobs = read_jobs(tmp_path)
    assert (jobs[0].requested, jobs[0].memory_mb) == (Requested(), 100.0)
    assert any("--benchmark-extended" in sentence for sentence in notes(jobs, "x"))
    assert table(jobs)[1].split() == ["split", "1", "-", "100", "-", "0.1", "-", "0.7", "-", "-"]


def test_a_record_of_a_failed_job_and_half_a_benchmark_count_for_nothing(tmp_path: Path) -> None:
    benchmark(tmp_path, "split", 3.0, 100.0, 2.0)
    record(tmp_path / "split.json.run.json", "split", 99.0, 9999.0, status="failed")
    (tmp_path / "benchmarks/label.tsv").write_text("\t".join(SHORT) + "\n")
    (tmp_path / "broken.run.json").write_text("{")
    [job] = read_jobs(tmp_path)
    assert job.memory_mb == 100.0


def test_a_folder_without_benchmarks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"there is no benchmark of a job in .*; run the pipeline through Snakemake first"
    ):
        read_jobs(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:01.500", 1.5), ("1-02:03:04", 93784.0), ("02:00:00", 7200.0), ("", 0.0)]
)
def test_times_of_slurm_are_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


# As Slurm 22.05 wrote it of a job on one node, of one on two nodes with GPUs, and of one that was not measured.
SACCT = """\
11|26|00:44.100||
11.batch|26|00:00.100|12380K|cpu=00:00:00,energy=0,fs/disk=32466,mem=12380K,pages=0
11.0|25|00:44.000|610.50M|cpu=00:00:44,energy=0,fs/disk=719243,mem=610.50M,pages=0
12|700|01:10:00||
12.0|690|01:10:00|8388608K|gres/gpumem=3000M,gres/gpuutil=80,mem=8G
13|5|00:01.000|1M|
"""


def test_accounting_of_slurm_is_read_with_its_job_steps() -> None:
    accounts = dict(parse_sacct(SACCT))
    assert (accounts["11"].seconds, accounts["11"].memory_mb, accounts["11"].cpu_s) == (26, 610.5, 44.1)
    assert (accounts["12"].memory_mb, accounts["12"].gpu_mb) == (8192, 3000)
    assert (accounts["13"].memory_mb, accounts["13"].gpu_mb) == (1.0, None)


def sacct(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of this name that is first in the PATH."""
    (folder / "bin").mkdir()
    (folder / "bin/sacct").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def test_the_larger_figure_of_snakemake_and_slurm_counts(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "accounts").write_text(SACCT)
    sacct(tmp_path, f"cat '{tmp_path}/accounts'", monkeypatch)
    # Slurm looks seldom, so that it may have missed a peak.
    benchmark(results, "split", 3.0, 100.0, 2.0)
    record(results / "split.json.run.json", "split", 2.0, 90.0, "13")
    jobs, sentence = with_accounting(read_jobs(results))
    assert sentence == "3 of 3 Slurm jobs are in its accounting"
    assert (jobs[0].seconds, jobs[0].memory_mb, jobs[0].cpu_s) == (26, 610.5, 44.1)
    assert jobs[0].requested == Requested(1500, 10, 2, 0, 1)
    assert (jobs[2].seconds, jobs[2].memory_mb, jobs[2].cpu_s) == (5, 100.0, 2.0)
    assert (jobs[3].memory_mb, jobs[3].gpu_mb, jobs[3].cpu_s) == (8192, 3000, 4200)
    assert jobs[1].memory_mb == 410.0


def test_without_accounting_the_benchmarks_are_alone_and_the_table_says_so(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sacct(tmp_path, "echo 'Slurm accounting storage is disabled' >&2; exit 1", monkeypatch)
    jobs, sentence = with_accounting(read_jobs(results))
    assert sentence == "Slurm has no accounting here: measured by Snakemake and eopipe alone"
    assert jobs == read_jobs(results)


def test_the_rule_that_took_the_most_time_is_first_with_efficiencies(results: Path) -> None:
    lines = table(read_jobs(results))
    assert lines[1].split() == ["train", "1", "9000", "-", "60", "10.0", "17%", "8", "-", "4", "2100"]
    assert lines[2].split()[:11] == ["preprocess", "2", "3000", "410", "14%", "20", "0.7", "3%", "2", "1.4", "68%"]


def test_the_command_prints_the_table_and_writes_nothing(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def digests() -> dict[str, str]:
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in results.rglob("*") if p.is_file()}

    before = digests()
    assert main(["usage"]) == 0
    output = capsys.readouterr().out
    assert main(["usage", "results"]) == 0
    assert capsys.readouterr().out == output
    assert "MB requested" in output
    assert "Each figure is the largest of one job, in its last attempt" in output
    assert digests() == before


def test_report_without_its_inputs_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report"]) == 2
    assert "arguments are required: --model" in (error := capsys.readouterr().err)
    assert "see eopipe report --help" in error


def test_a_manifest_counts_as_its_folder_in_the_size_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [{"size": 3_000_000}, {"size": 4_000_000}]}))
    (tmp_path / "other.bin").write_bytes(bytes(2_000_000))
    assert volume([str(tmp_path / "manifest.json"), str(tmp_path / "other.bin")]) == 9


SNAKEFILE = """\
rule preprocess:
    output: "made"
    benchmark: "results/benchmarks/preprocess.tsv"
    resources: mem_mb=700, runtime=12
    shell: "touch {output}"
"""


@pytest.mark.exhaustive
def test_snakemake_writes_the_requests_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--benchmark-extended"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    [job] = read_jobs(tmp_path / "results")
    assert (job.requested.memory_mb, job.requested.minutes, job.requested.cpus) == (700, 12, 1)
