"""The pipeline under Snakemake: what runs, what is rerun, and what survives a crash."""

import fcntl
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from socket import gethostname
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
import xarray as xr
import yaml
from patience import PATIENCE
from projects import DAYS, OPTIONAL, ROOT, Project, commands, environment, kill_tree
from torchmetrics.functional.classification import multiclass_calibration_error

from eopipe.arguments import parse
from eopipe.contract import STAGES, stage
from eopipe.run.project import LOCK, SNAKEFILE


def test_a_run_ends_with_map_scores_report_model_and_crate(finished: Project) -> None:
    for name in (
        "report.html",
        "map.png",
        "model-card.md",
        "metrics.json",
        "model.onnx",
        "crate/ro-crate-metadata.json",
    ):
        assert (finished.results / name).is_file(), name
    metrics = json.loads((finished.results / "metrics.json").read_text())
    assert metrics["model"]["accuracy"] > metrics["majority"]["accuracy"]


def test_the_published_probabilities_are_measured_where_they_are_tested(finished: Project) -> None:
    # Read and measured by other code than eopipe's.
    with rasterio.open(finished.results / "maps/mosaic/probabilities.tif") as file:
        # The last band is the spread of the members.
        probability, tags = file.read([1, 2]) * file.scales[0], file.tags()
    with rasterio.open(finished.results / "maps/mosaic/classes.tif") as file:
        classes = file.read(1)
    label = xr.open_zarr(finished.results / "labels/all.zarr", mask_and_scale=False)["label"].values
    split = json.loads((finished.results / "split.json").read_text())
    tested = np.zeros(label.shape, bool)
    for _, row, col in split["samples"]["test"]:
        tested[row : row + split["chip"], col : col + split["chip"]] = True
    tested &= (label < len(split["classes"])) & (classes < len(split["classes"]))
    assert (probability.argmax(0) == classes)[tested].mean() > 0.999
    chances = torch.tensor(probability[:, tested].T)
    # Stored probabilities are rounded: two may be equal, where the class of the map is that of the larger one.
    chances[torch.arange(len(chances)), torch.tensor(classes[tested].astype(int))] += 1e-6
    # Above 1 they would be taken for logits.
    chances /= 1 + 1e-6
    truth = torch.tensor(label[tested].astype(int))
    ece = float(multiclass_calibration_error(chances, truth, len(split["classes"]), n_bins=15, norm="l1"))
    measured = json.loads((finished.results / "metrics.json").read_text())["calibration"]
    assert measured["ece"] == pytest.approx(ece, abs=1e-5)
    # The validation places are too few to prove a temperature, so that the probabilities are the model's own.
    assert json.loads((finished.results / "calibration.json").read_text())["temperature"] == 1
    fitted = json.loads((finished.results / "calibration.json").read_text())
    assert fitted["after"]["ece"] <= fitted["before"]["ece"]
    assert fitted["independent"] < fitted["pieces"]
    assert float(tags["temperature"]) == pytest.approx(fitted["temperature"])
    card = (finished.results / "model-card.md").read_text()
    assert f"expected calibration error (ECE) {measured['ece']:.3f}" in card
    assert "Reliability curve" in (finished.results / "report.html").read_text()


def test_a_second_run_has_nothing_to_do_and_says_so(finished: Project) -> None:
    before = finished.digests()
    result = finished.run()
    assert result.returncode == 0
    assert "Nothing to be done" in result.stdout
    assert result.stdout.splitlines()[-1] == "The run is complete; its report is results/report.html"
    assert finished.digests() == before


@pytest.mark.parametrize(
    "several",
    [
        pytest.param({"trials": {"space": {"width": [4, 8]}, "rungs": [0.5]}}, marks=pytest.mark.exhaustive),
        {"members": 2},
        pytest.param({"folds": 3}, marks=pytest.mark.exhaustive),
    ],
    ids=["trials", "members", "folds"],
)
def test_trials_members_and_folds_are_added_to_a_finished_run_and_taken_away_again(
    several: dict[str, Any], finished: Project, tmp_path: Path
) -> None:
    project = Project(tmp_path / "project")
    shutil.copytree(finished.folder, project.folder, symlinks=True)
    single = yaml.safe_load((project.folder / "config.yaml").read_text())
    before = project.digests()
    for config in (single | several, single):
        (project.folder / "config.yaml").write_text(yaml.safe_dump(config))
        result = project.run("--show-failed-logs")
        assert result.returncode == 0, result.stdout
        assert "The run is complete" in result.stdout
        assert project.planned() == []
    after = project.digests()
    assert {name: after[name] for name in before} == before


def test_what_cannot_be_written_is_said_before_the_first_job(finished: Project, tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    shutil.copytree(finished.folder, project.folder, symlinks=True)
    (project.results / "model/thesis.txt").write_text("years")
    (project.results / "map.png").unlink()
    (project.results / "map.png").mkdir()
    before = project.digests()
    result = project.run("--forcerun", "split", "report")
    assert result.returncode == 1
    sentence = (
        "results/map.png is a folder; results/model contains thesis.txt, which eopipe did not write and would replace"
    )
    assert sentence in result.stdout
    assert "rule split:" not in result.stdout
    assert "Traceback" not in result.stdout
    assert project.digests() == before


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("metrics.json", "evaluate"),
        ("map.png", "report"),
        ("model-card.md", "report"),
        ("data-card.md", "report"),
        ("model", "train"),
        ("model.onnx", "export"),
        ("calibration.json", "calibrate"),
        ("split.json", "split"),
        ("split.gpkg", "split"),
        ("maps/mosaic/classes.tif", "predict"),
        ("catalog", "catalog"),
        ("crate", "crate"),
    ],
)
def test_each_result_that_is_promised_is_made_again_where_it_was_deleted(
    finished: Project, tmp_path: Path, name: str, maker: str
) -> None:
    (finished.results / name).rename(tmp_path / "deleted")
    planned = finished.planned()
    (tmp_path / "deleted").rename(finished.results / name)
    assert maker in planned
    assert "preprocess" not in planned


def test_stores_that_were_deleted_to_save_space_are_not_made_again(finished: Project, tmp_path: Path) -> None:
    for name in ("scenes", "tiles"):
        (finished.results / name).rename(tmp_path / name)
    planned = finished.planned()
    for name in ("scenes", "tiles"):
        (tmp_path / name).rename(finished.results / name)
    assert planned == []


def test_every_job_line_is_accepted_by_the_parser_of_its_stage(finished: Project) -> None:
    # If the search is forced, all later inputs are unknown, so it is planned separately.
    lines = []
    for forced in (["search"], ["fetch", "label"]):
        result = finished.run("--dry-run", "--printshellcmds", "--forcerun", *forced)
        lines += [
            arguments for arguments in commands(result.stdout) if (arguments[0] == "search") == (forced == ["search"])
        ]
    assert {arguments[0] for arguments in lines} == set(STAGES) - OPTIONAL
    per_scene = [arguments for arguments in lines if arguments[0] in ("fetch", "preprocess")]
    assert len(per_scene) == 2 * len(DAYS)
    for arguments in lines:
        parse(stage(arguments[0]), arguments[1:])


def test_a_dry_run_of_a_new_project_shows_the_jobs_known_before_the_search(project: Project) -> None:
    planned = project.planned()
    assert set(STAGES) - set(planned) == OPTIONAL | {"fetch", "preprocess"}, "the scenes are not known yet"


def test_a_job_line_has_the_settings_of_the_config(finished: Project) -> None:
    result = finished.run("--dry-run", "--printshellcmds", "--forcerun", "fetch", "label")
    lines = {arguments[0]: arguments for arguments in commands(result.stdout)}
    train = parse(stage("train"), lines["train"][1:])
    assert (train["epochs"], train["processes"], train["checkpoint_every"]) == (6, 2, 10)
    label = parse(stage("label"), lines["label"][1:])
    assert (label["bins"], label["classes"]) == ((50.0,), ("non-forest", "forest"))


AFTER_TRAIN = {"train", "calibrate", "predict", "evaluate", "export", "report", "catalog", "crate", "all"}


def test_results_that_were_removed_or_shortened_are_named_although_nothing_is_to_be_done(finished: Project) -> None:
    store = finished.results / f"tiles/S2_ROMANIA_{DAYS[0]}.zarr"
    onnx, aside = finished.results / "model.onnx", finished.folder / "aside"
    aside.mkdir()
    store.rename(aside / "store")
    onnx.rename(aside / "onnx")
    try:
        onnx.write_bytes((aside / "onnx").read_bytes()[:-1])
        output = finished.run("--dry-run", "--", "results/metrics.json").stdout
    finally:
        (aside / "store").rename(store)
        (aside / "onnx").rename(onnx)
    assert re.search(
        r"warning: 2 of \d+ results were removed or changed since they were made, such as results/", output
    )
    assert "`eopipe verify results` lists them, with --repair it rebuilds them" in output
    assert "warning:" not in finished.run("--dry-run").stdout


def test_changing_the_epochs_reruns_train_and_what_follows_and_nothing_before(finished: Project) -> None:
    finished.write(train={"epochs": 5})
    try:
        assert set(finished.planned()) == AFTER_TRAIN
    finally:
        finished.write()


def test_changing_a_knob_or_an_option_that_decides_nothing_reruns_nothing(finished: Project) -> None:
    # Outside of deterministic mode the number of shards has no meaning, as that of processes has none in it.
    finished.write(train={"checkpoint_every": 7, "cache_mb": 64, "shards": 3}, fetch={"workers": 2})
    try:
        assert finished.planned() == []
    finally:
        finished.write()


def test_changing_the_chunks_keeps_the_downloads(finished: Project) -> None:
    finished.write(preprocess={"chunk": 64})
    try:
        planned = finished.planned()
    finally:
        finished.write()
    assert planned.count("preprocess") == len(DAYS)
    assert not {"search", "fetch", "label"} & set(planned)


def test_forcerun_train_trains_again_and_what_follows(finished: Project) -> None:
    assert set(finished.planned("--forcerun", "train")) == AFTER_TRAIN


@pytest.mark.exhaustive
def test_any_file_is_a_target(finished: Project, project: Project) -> None:
    store = f"results/tiles/S2_ROMANIA_{DAYS[0]}.zarr/manifest.json"
    assert finished.planned("--", store) == []
    result = project.run("--", store)
    assert result.returncode == 0, result.stdout
    assert sorted(p.name for p in (project.results / "tiles").glob("*.zarr")) == [f"S2_ROMANIA_{DAYS[0]}.zarr"]


def test_a_map_of_one_scene_is_a_target_too(finished: Project) -> None:
    planned = finished.planned("--", f"results/maps/S2_ROMANIA_{DAYS[0]}/classes.tif")
    assert planned == ["predict"]


@pytest.mark.exhaustive
def test_deleted_results_are_rebuilt_identically_although_everything_is_killed_during_training(
    finished: Project,
) -> None:
    before = finished.digests()
    shutil.rmtree(finished.results)
    shutil.rmtree(finished.folder / "state")
    pipe = subprocess.DEVNULL
    process = subprocess.Popen(
        finished.command(), cwd=finished.folder, stdout=pipe, stderr=pipe, start_new_session=True, env=environment()
    )
    deadline = time.monotonic() + PATIENCE
    while not list(finished.folder.glob("state/train/*/step-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kill_tree(process.pid)
    process.wait()
    with (finished.folder / LOCK).open() as lock:
        # A warm run outlives its client for a moment.
        fcntl.flock(lock, fcntl.LOCK_EX)
    # Snakemake makes the folder itself before the job starts.
    assert not list((finished.results / "model").glob("*"))
    resumed = finished.run()
    assert resumed.returncode == 0, resumed.stdout
    assert "event=resume" in (finished.results / "logs/train.log").read_text()
    assert finished.digests() == before


@pytest.mark.exhaustive
def test_a_second_run_in_the_same_folder_is_refused_while_the_first_is_alive(project: Project) -> None:
    # An interpreter of its own, whose number is known; SIGINT would be ignored where these tests are in the background.
    command, output = [sys.executable, *project.command()[1:]], subprocess.DEVNULL
    first = subprocess.Popen(command, cwd=project.folder, stdout=output, stderr=output, env=environment())
    deadline = time.monotonic() + PATIENCE
    while not project.results.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = project.run()
    first.terminate()
    first.wait(PATIENCE)
    assert second.returncode == 2
    holder = rf"process {first.pid} on {gethostname()} since 20"
    assert re.search(f"a run is active in this folder: {holder}", second.stdout)


@pytest.mark.exhaustive
def test_a_truncated_asset_stops_the_run_and_completed_results_stay(project: Project) -> None:
    (project.folder / "sample").unlink()
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    broken = project.folder / f"sample/sentinel-2-l2a-romania/S2_ROMANIA_{DAYS[3]}/B04.tif"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:3000])
    result = project.run("--keep-going", "--show-failed-logs")
    assert result.returncode == 1
    output = result.stdout
    assert f"scene S2_ROMANIA_{DAYS[3]}, asset red (B04.tif) has 3000 bytes, the catalog says {len(whole)}" in output
    scenes = sorted(p.name for p in (project.results / "scenes").iterdir() if p.is_dir() and p.name[0] != ".")
    assert scenes == [f"S2_ROMANIA_{day}" for day in DAYS if day != DAYS[3]]
    broken.write_bytes(whole)
    planned = project.planned()
    assert planned.count("fetch") == 1
    assert planned.count("preprocess") == 1


def test_a_misspelt_setting_is_one_sentence_before_any_job(project: Project) -> None:
    project.write(train={"epocs": 3})
    result = project.run()
    assert result.returncode == 1
    assert "config.yaml: train has no setting epocs; did you mean epochs?" in result.stdout
    assert not project.results.exists()


def test_a_setting_on_the_command_line_is_checked_too(project: Project) -> None:
    result = project.run("--dry-run", "--config", "train={epochs: none}")
    assert "train.epochs is 'none'" in result.stdout


def test_values_of_the_config_never_run_in_the_shell(project: Project) -> None:
    project.write(report={"title": "x; touch PWNED; $(touch PWNED) `touch PWNED` ' \" \n y"})
    result = project.run("--dry-run", "--forceall", "--printshellcmds")
    assert result.returncode == 0, result.stdout
    project.write(search={"ids": ["x; touch PWNED #", "$(touch PWNED)"]})
    assert project.run("--", "results/grid.json").returncode == 1
    assert not (project.folder / "PWNED").exists()
    assert "no scene matches" in (project.results / "logs/search.log").read_text()


@pytest.mark.exhaustive
def test_braces_in_texts_of_the_config_are_no_wildcards_and_in_paths_they_are_refused(project: Project) -> None:
    title = {"title": "Forest {2018} {scene} {{x}}"}
    project.write(
        search={"ids": [f"S2_ROMANIA_{DAYS[0]}"]},
        label={"classes": ["not {a}", "forest {2018}"]},
        **dict.fromkeys(("report", "catalog"), title),
        crate=title | {"description": "{params.options}"},
    )
    assert set(project.planned()) >= {"search", "label", "report", "catalog", "crate"}
    result = project.run("--", "results/labels/all.zarr/manifest.json")
    assert result.returncode == 0, result.stdout
    assert "'forest {2018}'" in (project.results / "logs/label/all.log").read_text().splitlines()[0]
    assert "forest {2018}" in (project.results / "labels/all.zarr/zarr.json").read_text()
    project.write(label={"source": "cover {2018}.tif"})
    sentence = "error: cover {2018}.tif: Snakemake takes braces in file names for wildcards; rename it"
    assert sentence in project.run("--dry-run").stdout


def test_a_run_of_another_config_is_refused_before_it_replaces_a_result(project: Project) -> None:
    assert project.run("results/grid.json").returncode == 0
    before, text = project.digests(), (project.folder / "config.yaml").read_text()
    (project.folder / "other.yaml").write_text(text.replace("epochs: 6", "epochs: 7"))
    result = project.run("--configfile", "other.yaml", "--forceall", "--", "results/grid.json")
    assert result.returncode == 1
    assert "results has the results of config.yaml, which a run of other.yaml would replace; add `results: " in (
        result.stdout
    )
    assert "Traceback" not in result.stdout
    assert project.digests() == before


@pytest.mark.parametrize("program", [["snakemake", "--cores", "1"], ["eopipe", "run"]], ids=" ".join)
def test_a_key_that_a_config_has_twice_is_refused_with_its_lines_by_every_way_to_run(
    project: Project, program: list[str]
) -> None:
    path = project.folder / "config.yaml"
    path.write_text(f"{path.read_text()}train: {{epochs: 3}}\n")
    lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if line.startswith("train:")]
    snakefile = ["--snakefile", str(ROOT / "Snakefile")] if program[0] == "snakemake" else []
    result = dry_run(project, *program, *snakefile, "--configfile", "config.yaml")
    assert result.returncode == 1
    assert f"config.yaml has a key twice, and YAML would keep only the last one: train on lines {lines[0]} and" in (
        result.stdout
    )


@pytest.mark.parametrize("program", [["snakemake", "--cores", "1"], ["eopipe", "run"]], ids=" ".join)
@pytest.mark.exhaustive
def test_a_config_of_the_command_line_replaces_that_of_a_project(project: Project, program: list[str]) -> None:
    (project.folder / "Snakefile").write_text(SNAKEFILE)
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    del config["train"]["epochs"]
    (project.folder / "variant.yaml").write_text(yaml.safe_dump(config))
    project.write(train={"epochs": 20, "seed": 7})
    result = dry_run(project, *program, "--printshellcmds", "--configfile", "variant.yaml")
    assert result.returncode == 0, result.stdout
    by_stage = {arguments[0]: " ".join(arguments) for arguments in commands(result.stdout)}
    assert "--epochs" not in by_stage["train"]
    assert "--seed 0" in by_stage["train"]
    assert "--config variant.yaml" in by_stage["crate"]
    assert "--epochs 20 " in dry_run(project, *program, "--printshellcmds").stdout
    result = dry_run(project, *program, "--configfile", "config.yaml", "variant.yaml")
    assert result.returncode == 1
    assert "config.yaml and variant.yaml are several configs, and a run has one: merge them" in result.stdout


def dry_run(project: Project, *command: str) -> "subprocess.CompletedProcess[str]":
    """A dry run by a command line; `stdout` has both streams."""
    return subprocess.run(
        [*command, "--dry-run"],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
        env=environment(),
    )


def test_the_list_of_rules_has_a_sentence_for_each() -> None:
    result = subprocess.run(
        ["snakemake", "--list"], cwd=ROOT, capture_output=True, text=True, check=True, env=environment()
    )
    descriptions = dict(re.findall(r"^(\w+) \((.+)\)$", result.stdout, re.MULTILINE))
    assert set(descriptions) == (({*STAGES} - OPTIONAL) | {"composite", "products"}) | {
        "predict_part",
        "all",
        "fetched",
    }
    assert all(text.endswith(".") for text in descriptions.values())


@pytest.mark.exhaustive
def test_a_config_that_switches_products_on_makes_them_and_nothing_else_again(
    finished: Project, tmp_path: Path
) -> None:
    shutil.copytree(finished.folder, tmp_path / "run", symlinks=True)
    project = Project(tmp_path / "run")
    project.write(products={"zones": "sample/area.geojson"})
    assert project.planned() == []
    with (project.folder / "config.yaml").open("a") as file:
        file.write("with_products: true\n")
    assert project.planned() == ["products", "all"]
    before = project.digests()
    assert (result := project.run()).returncode == 0, result.stdout
    assert "results/products/polygons.gpkg" in result.stdout
    after = project.digests()
    assert {name: after[name] for name in before} == before
    assert {*after} - {*before} == {
        f"products/{name}"
        for name in ("classes.tif", "classes.qml", "entropy.tif", "polygons.gpkg", "zones.csv", "manifest.json")
    }
    (row,) = (project.results / "products/zones.csv").read_text().splitlines()[1:]
    assert row.startswith("sample,")
