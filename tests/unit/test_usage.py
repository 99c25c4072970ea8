"""What jobs asked and used is read from what they left, and formulas follow from it."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eopipe.cli import main
from eopipe.clusters.tuning import tuned
from eopipe.clusters.usage import (
    Asked,
    Job,
    accounts,
    lines,
    notes,
    page,
    read_jobs,
    rows_of,
    seconds_of,
    with_accounts,
)
from eopipe.clusters.usage_formulas import Formula, line, propose
from eopipe.errors import UsageError
from eopipe.run.rules import volume

SHORT = ["s", "h:m:s", "max_rss", "max_vms", "max_uss", "max_pss", "io_in", "io_out", "mean_load", "cpu_time"]
LONG = [*SHORT, *["jobid", "rule_name", "wildcards", "params", "threads", "cpu_usage", "resources", "input_size_mb"]]


def benchmark(results: Path, name: str, seconds: float, rss: object, cpu: object, **asked: Any) -> None:
    """A file as Snakemake writes it; the longer one where something was asked."""
    told = {"s": seconds, "h:m:s": "0:00:01", "max_rss": rss, "cpu_time": cpu}
    if asked:
        inputs = dict.fromkeys(asked.pop("inputs", ()), 0.001)
        told |= {"threads": asked.pop("threads", 1), "resources": asked, "input_size_mb": inputs}
    head = LONG if asked else SHORT
    file = results / "benchmarks" / f"{name}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\t".join(head) + "\n" + "\t".join(str(told.get(column, "0.00")) for column in head) + "\n")


def record(path: Path, stage: str, cpu: float, rss: float, slurm: str = "", status: str = "completed") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    usage, place = {"cpu_s": cpu, "max_rss_mb": rss}, {"job": f"slurm:{slurm}" if slurm else ""}
    path.write_text(json.dumps({"stage": stage, "status": status, "usage": usage, "place": place}))


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two scenes and a training on two nodes."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "results"
    benchmark(made, "preprocess/a", 20.0, 300.5, 30.0, mem_mb=1500, runtime=10, threads=2)
    benchmark(made, "preprocess/b.v1", 40.0, "NA", "NA", mem_mb=3000, runtime=20, threads=2)
    gpus = {"gres": "gpu:a100:4", "nodes": 2, "cpus_per_task": 8}
    benchmark(made, "train", 600.0, 5.0, 1.0, mem_mb=9000, runtime=60, threads=4, knobs="--x 'y'", **gpus)
    record(made / "tiles/a.zarr.run.json", "preprocess", 31.0, 290.0, "11")
    record(made / "tiles/b.v1.zarr.run.json", "preprocess", 50.0, 410.0)
    record(made / "model.run.json", "train", 2.0, 9.0, "12")
    (made / "logs").mkdir()
    (made / "logs/train.log").write_text("event=progress\nevent=device name=cuda memory_mb=2100\n")
    return made


def test_what_a_job_asked_stands_in_its_benchmark_and_its_peaks_there_or_in_its_record(results: Path) -> None:
    a, b, train = read_jobs(results)
    assert (a.rule, a.name, a.seconds, a.memory_mb, a.cpu_s, a.slurm) == ("preprocess", "a", 20.0, 300.5, 31.0, "11")
    assert a.asked == Asked(1500, 10, 2, 0, 1)
    # It ended before Snakemake looked; its name has a dot.
    assert (b.name, b.memory_mb, b.cpu_s) == ("b.v1", 410.0, 50.0)
    assert train.asked == Asked(9000, 60, 8, 4, 2)
    assert train.gpu_mb == 2100


def test_a_training_over_nodes_claims_no_memory_that_nobody_saw(results: Path) -> None:
    jobs = read_jobs(results)
    assert (jobs[2].memory_mb, jobs[2].cpu_s) == (None, None)
    assert any("Memory and CPUs of train, on many nodes" in sentence for sentence in notes(jobs, "x"))


def test_a_short_benchmark_tells_what_was_used_and_that_asking_is_unknown(tmp_path: Path) -> None:
    benchmark(tmp_path, "split", 3.0, 100.0, 2.0)
    jobs = read_jobs(tmp_path)
    assert (jobs[0].asked, jobs[0].memory_mb) == (Asked(), 100.0)
    assert any("--benchmark-extended" in sentence for sentence in notes(jobs, "x"))
    assert lines(rows_of(jobs), [])[1].split() == ["split", "1", "-", "100", "-", "0.1", "-", "0.7", "-", "-"]


def test_a_record_of_a_failed_job_and_half_a_benchmark_tell_nothing(tmp_path: Path) -> None:
    benchmark(tmp_path, "split", 3.0, 100.0, 2.0)
    record(tmp_path / "split.json.run.json", "split", 99.0, 9999.0, status="failed")
    (tmp_path / "benchmarks/label.tsv").write_text("\t".join(SHORT) + "\n")
    (tmp_path / "broken.run.json").write_text("{")
    [job] = read_jobs(tmp_path)
    assert job.memory_mb == 100.0


def test_a_folder_without_benchmarks_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no job left a benchmark in .*; run the pipeline through Snakemake first"):
        read_jobs(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:01.500", 1.5), ("1-02:03:04", 93784.0), ("02:00:00", 7200.0), ("", 0.0)]
)
def test_times_of_slurm_are_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


# As Slurm 22.05 told it of a job on one node and of one on two with GPUs, and one of another site.
SACCT = """\
11|26|00:44.100||600M|2|1|7|billing=2,cpu=2,mem=600M,node=1|
11.batch|26|00:00.100|12380K||2|1||cpu=2,mem=600M,node=1|cpu=00:00:00,energy=0,fs/disk=32466,mem=12380K,pages=0
11.0|25|00:44.000|610.50M||2|1||cpu=2,mem=600M,node=1|cpu=00:00:44,energy=0,fs/disk=719243,mem=610.50M,pages=0
12|700|01:10:00||36000M|16|2|90|billing=16,cpu=16,gres/gpu=8,mem=36000M,node=2|
12.0|690|01:10:00|8388608K||16|2||cpu=16,gres/gpu=8,mem=36000M,node=2|gres/gpumem=3000M,gres/gpuutil=80,mem=8G
13|5|00:01.000|1M|2Gc|4|1|UNLIMITED||
"""


def test_accounts_of_slurm_are_read_with_their_steps() -> None:
    told = dict(accounts(SACCT))
    assert (told["11"].memory_mb, told["11"].cpu_s, told["11"].asked) == (610.5, 44.1, Asked(600, 7, 2, 0, 1))
    assert (told["12"].memory_mb, told["12"].gpu_mb) == (8192, 3000)
    assert told["12"].asked == Asked(18000, 90, 8, 4, 2)
    assert told["13"].asked == Asked(8192, None, 4, 0, 1)


def sacct(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of this name that comes first."""
    (folder / "bin").mkdir()
    (folder / "bin/sacct").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/sacct").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def test_the_larger_of_what_snakemake_and_slurm_saw_counts(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told").write_text(SACCT)
    sacct(tmp_path, f"cat '{tmp_path}/told'", monkeypatch)
    jobs, said = with_accounts(read_jobs(results))
    assert said == "2 of 2 jobs of Slurm are in its accounts"
    assert (jobs[0].seconds, jobs[0].memory_mb, jobs[0].cpu_s) == (26, 610.5, 44.1)
    # What Snakemake asked stands as it was asked.
    assert jobs[0].asked == Asked(1500, 10, 2, 0, 1)
    assert (jobs[2].memory_mb, jobs[2].gpu_mb, jobs[2].cpu_s) == (8192, 3000, 4200)
    assert jobs[1].memory_mb == 410.0


def test_without_accounts_the_benchmarks_stand_alone_and_that_is_told(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sacct(tmp_path, "echo 'Slurm accounting storage is disabled' >&2; exit 1", monkeypatch)
    jobs, said = with_accounts(read_jobs(results))
    assert said == "Slurm keeps no accounts here: measured by Snakemake and eopipe alone"
    assert jobs == read_jobs(results)


def test_the_rule_that_took_the_most_time_comes_first_with_shares(results: Path) -> None:
    jobs = read_jobs(results)
    told = lines(rows_of(jobs), ["a word"])
    assert told[1].split() == ["train", "1", "9000", "-", "60", "10.0", "17%", "8", "-", "4", "2100"]
    assert told[2].split()[:8] == ["preprocess", "2", "3000", "410", "14%", "20", "0.7", "3%"]
    assert told[-1] == "a word"


def test_usage_alone_shows_the_table_and_touches_no_payload(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def payload() -> dict[str, str]:
        kept = [p for p in results.rglob("*") if p.is_file() and p.parts[-2] != "benchmarks"]
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in kept}

    before = payload()
    assert main(["usage"]) == 0
    shown = capsys.readouterr().out
    assert "MB asked" in shown
    first = (results / "benchmarks/usage.html").read_bytes()
    assert main(["usage", "results"]) == 0
    assert (results / "benchmarks/usage.html").read_bytes() == first
    assert payload() == before
    assert b"<script" not in first
    assert b"http" not in first


def test_a_rule_with_an_odd_name_is_escaped_in_the_page() -> None:
    odd = Job("<b>", "", 1.0, None, None, Asked())
    assert "<b>" not in page(rows_of([odd]), ["a < b"])


def test_few_jobs_or_inputs_that_are_alike_tell_no_slope() -> None:
    assert line([(10.0, 100.0), (20.0, 200.0)]) == (200.0, 0.0)
    assert line([(10.0 + n, 100.0 + n) for n in range(9)]) == (108.0, 0.0)
    assert line([(None, 7.0), *((float(10 * n), 100.0 * n) for n in range(9))]) == (800.0, 0.0)


def test_one_odd_job_does_not_turn_the_line_but_lies_under_it() -> None:
    points: list[tuple[float | None, float]] = [(float(10 * n), 100.0 + 30.0 * n) for n in range(1, 10)]
    assert line(points) == (pytest.approx(100.0), pytest.approx(3.0))
    base, slope = line([*points, (20.0, 900.0)])
    assert slope == pytest.approx(3.0, abs=0.3)
    assert base + slope * 20 >= 900 - 1e-9


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=30))
def test_no_job_lies_above_its_line(points: list[tuple[float, float]]) -> None:
    base, slope = line(list(points))
    assert all(base + slope * size >= value * (1 - 1e-9) - 1e-6 for size, value in points)
    assert slope >= 0


def many(folder: Path) -> list[Job]:
    """Eight scenes whose memory and time grow with their input."""
    jobs = []
    for n in range(1, 9):
        file = folder / f"scene-{n}.tif"
        with file.open("wb") as made:
            made.truncate(n * 50_000_000)
        used = (100.0 + 2 * 50 * n, 60.0 + 0.6 * 50 * n)
        jobs.append(Job("preprocess", f"{n}", used[1], used[0], 5.0, Asked(), (str(file),)))
    return jobs


def test_a_formula_has_headroom_over_every_job_and_grows_with_the_input(tmp_path: Path) -> None:
    [told] = propose(many(tmp_path))
    memory, runtime = told.formulas["mem_mb"], told.formulas["runtime"]
    assert (memory.base, memory.slope) == (700, 2.6)
    assert (runtime.base, runtime.slope) == (10, 0.02)
    assert told.why == "8 jobs with 50 to 400 MB of input used at most 900 MB, 5.0 minutes"


def test_a_job_alone_gives_a_constant_that_says_so() -> None:
    [told] = propose([Job("train", "", 90.0, 800.0, 5.0, Asked())])
    assert {name: str(formula) for name, formula in told.formulas.items()} == {
        "mem_mb": "1600 * attempt",
        "runtime": "10 * attempt",
    }
    assert told.why == "1 job used at most 800 MB, 1.5 minutes; good for inputs like these"


def test_a_manifest_stands_for_its_folder_in_the_size_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [{"size": 3_000_000}, {"size": 4_000_000}]}))
    (tmp_path / "other.bin").write_bytes(bytes(2_000_000))
    assert volume([str(tmp_path / "manifest.json"), str(tmp_path / "other.bin")]) == 9


PROFILE = """\
# my own words
executor: slurm
set-resources:   # these
  preprocess:
    slurm_partition: big   # kept in meaning
    mem_mb: 9000

  label:
    runtime: 7
# after it
retries: 3         # and this
"""


def test_a_tuned_profile_keeps_every_word_that_it_does_not_change(tmp_path: Path) -> None:
    old = tmp_path / "config.yaml"
    old.write_text(PROFILE)
    made = tuned(old, propose(many(tmp_path)), "no accounts")
    told = yaml.safe_load(made)
    assert {"# my own words", "# after it", "retries: 3         # and this"} <= set(made.splitlines())
    assert told["set-resources"]["label"] == {"runtime": 7}
    assert told["set-resources"]["preprocess"]["slurm_partition"] == "big"
    assert told["set-resources"]["preprocess"]["mem_mb"] == str(Formula(700, 2.6))
    assert "# 8 jobs with 50 to 400 MB of input used at most 900 MB, 5.0 minutes" in made
    assert old.read_text() == PROFILE


def test_yaml_in_another_style_keeps_its_meaning(tmp_path: Path) -> None:
    old = tmp_path / "config.yaml"
    old.write_text('{"executor": "slurm", "set-resources": {"label": {"runtime": 7}}}')
    told = yaml.safe_load(tuned(old, propose(many(tmp_path)), "x"))
    assert (told["executor"], told["set-resources"]["label"]) == ("slurm", {"runtime": 7})
    assert set(told["set-resources"]["preprocess"]) == {"mem_mb", "runtime"}


def test_formulas_are_shown_and_written_only_when_asked_and_only_under_a_new_name(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home/snakemake"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (home / "slurm").mkdir(parents=True)
    (home / "slurm/config.yaml").write_text(PROFILE)
    assert main(["profile", "tune"]) == 0
    assert "set-resources:\n  preprocess:\n    # 2 jobs used at most 410 MB" in capsys.readouterr().out
    assert [path.name for path in home.iterdir()] == ["slurm"]
    assert main(["profile", "tune", "--write", "slurm"]) == 2
    assert "exists already and is left as it is" in capsys.readouterr().err
    assert main(["profile", "tune", "--write", "fitted"]) == 0
    assert (home / "slurm/config.yaml").read_text() == PROFILE
    assert yaml.safe_load((home / "fitted/config.yaml").read_text())["retries"] == 3


SNAKEFILE = """\
rule preprocess:
    input: scene="store/manifest.json", other="grid.json"
    output: "made"
    benchmark: "results/benchmarks/preprocess.tsv"
    shell: "touch {output}"
"""


def test_snakemake_understands_the_formulas_and_writes_what_it_asked(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/manifest.json").write_text(json.dumps({"files": [{"size": 100_000_000}]}))
    (tmp_path / "grid.json").write_text("{}")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "old").mkdir()
    (tmp_path / "old/config.yaml").write_text("cores: 1\nbenchmark-extended: true\n")
    (tmp_path / "new").mkdir()
    made = tuned(tmp_path / "old/config.yaml", propose(many(tmp_path)), "x")
    (tmp_path / "new/config.yaml").write_text(made)
    command = [sys.executable, "-m", "snakemake", "--profile", "new"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    [job] = read_jobs(tmp_path / "results")
    assert (job.asked.memory_mb, job.asked.minutes) == (700 + 260, 12)
    assert job.inputs == ("store/manifest.json", "grid.json")
