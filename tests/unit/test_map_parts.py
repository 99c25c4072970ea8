"""Parts of a map, each made by a job of its own: the map that is made from them is the one of a single job."""

import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from builders import describe_model, map_files, predict_files, read_bands, save_model, stage, write_model, write_scenes
from fake_condor import classad2, htcondor2, run_dag, submit
from hypothesis import given
from hypothesis import strategies as st

from eopipe.arrays import AnyArray
from eopipe.chips.chips import fill_nearest
from eopipe.errors import BadInputError
from eopipe.inference.map_files import windows_of_part
from eopipe.models import Architecture
from eopipe.models.model_folder import model_id, read_trained_model
from eopipe.tiles.grid import windows
from eopipe.tiles.store import Tiles

# A map of 80 x 72 pixels has four windows of 64.
CLASSES = {"segmentation": ("a", "b"), "multilabel": ("a", "b", "c"), "regression": ("height",)}
CLASSES["classification"] = CLASSES["segmentation"]


def predict(folder: Path, model: Path, tiles: list[Path], *options: object) -> tuple[Path, Path]:
    """Both files of a map."""
    window = [] if "--window" in options else ["--window", 64]
    return predict_files(folder, model, tiles, *window, *options)


def from_parts(parts: list[tuple[Path, Path]]) -> list[object]:
    return ["--finished-parts", *(path for part in parts for path in part)]


def digests(paths: tuple[Path, Path]) -> list[str]:
    return [sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", sorted(CLASSES))
def test_a_map_of_parts_has_the_bytes_of_the_map_of_one_job(task: str, tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model", task, CLASSES[task]), write_scenes(tmp_path, 2)
    whole = digests(predict(tmp_path / "whole", model, tiles))
    for count in (2, 3, 7):
        parts = [
            predict(tmp_path / f"{number}-of-{count}", model, tiles, "--part", f"{number}-of-{count}")
            for number in range(1, count + 1)
        ]
        assert digests(predict(tmp_path / f"all-{count}", model, tiles, *from_parts(parts))) == whole
    # What no part has is predicted.
    assert digests(predict(tmp_path / "rest", model, tiles, *from_parts(parts[2:4]))) == whole


@pytest.mark.parametrize("name", ["unet", "convnext"])
def test_a_map_of_any_window_and_parts_is_one_pass_of_the_model_over_the_whole_scene(name: str, tmp_path: Path) -> None:
    trained = describe_model("segmentation", ("a", "b", "c"), architecture=Architecture(name, 2, 3, 4, 1), chip=16)
    save_model(tmp_path / "model", trained)
    tiles = write_scenes(tmp_path, 1)
    expected, valid = dense_probabilities(tmp_path / "model", tiles[0])
    for window, count in ((64, 1), (64, 3), (72, 2), (1024, 1)):
        run = tmp_path / f"{window}-{count}"
        parts = [
            predict(run / str(n), tmp_path / "model", tiles, "--window", window, "--part", f"{n}-of-{count}")
            for n in range(1, count + 1)
        ]
        _, path = predict(run / "map", tmp_path / "model", tiles, "--window", window, *from_parts(parts))
        mapped = read_bands(path)
        assert np.abs(mapped[:, valid] / 10_000 - expected[:, valid]).max() < 1.1e-4
        assert (mapped[:, ~valid] == 65_535).all()


def dense_probabilities(model: Path, tiles: Path) -> tuple[AnyArray, AnyArray]:
    """Probabilities (class, y, x) of a model by one forward of the whole scene, filled, and where it is valid."""
    trained, store = read_trained_model(model), Tiles(tiles)
    module, (height, width) = trained.build(model), store.shape
    y, x = slice(0, height), slice(0, width)
    valid = store.valid(y, x)
    image = np.where(valid, (store.read("image", y, x) * 1e-4 - 0.2) / 0.1, 0).astype(np.float32)
    margin = -(-trained.architecture.receptive_field_radius // 8) * 8
    padded = np.pad(image, ((0, 0), (margin, margin + -height % 8), (margin, margin + -width % 8)))
    fill_nearest(padded, np.pad(valid, [(margin, margin + -length % 8) for length in valid.shape]))
    with torch.inference_mode():
        output = module(torch.from_numpy(padded[None])).softmax(1)[0].numpy()
    return output[:, margin : margin + height, margin : margin + width], valid


def test_what_a_part_has_is_not_predicted_again(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), write_scenes(tmp_path, 1)
    parts = [predict(tmp_path / f"part{n}", model, tiles, "--part", f"{n}-of-2") for n in (1, 2)]
    with rasterio.open(parts[0][0], "r+") as file:
        file.write(file.read(1) * 0 + 1, 1)
    changed, _ = predict(tmp_path / "map", model, tiles, *from_parts(parts))
    assert (read_bands(changed)[0, :64] == 1).all()


def test_a_part_holds_its_windows_alone(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), write_scenes(tmp_path, 1)
    classes, probabilities = predict(tmp_path / "part", model, tiles, "--part", "2-of-2")
    for path in (classes, probabilities):
        with rasterio.open(path) as file:
            assert file.shape == (80, 72)
            covered = file.read(1) != file.nodata
        assert covered[64:].any()
        assert not covered[:64].any()


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 40))
def test_parts_divide_the_windows_into_runs_of_nearly_the_same_length(height: int, width: int, parts: int) -> None:
    every = windows((height, width), 64)
    runs = [windows_of_part(f"{number}-of-{parts}", every) for number in range(1, parts + 1)]
    assert [window for run in runs for window in run] == every
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), write_scenes(tmp_path, 2)
    part = predict(tmp_path / "part", model, tiles, "--part", "1-of-2")
    of_one = predict(tmp_path / "of-one", model, tiles[:1], "--part", "1-of-2")
    whole = predict(tmp_path / "whole", model, tiles)
    other = predict(
        tmp_path / "other", write_model(tmp_path / "b", "segmentation", ("a", "c")), tiles, "--part", "2-of-2"
    )
    target = ["--classes", tmp_path / "c.tif", "--probabilities", tmp_path / "p.tif"]
    base = ["predict", "--model", model, "--tiles", *tiles, *target]
    refused = {
        "its scenes is s0, in this map it is s0 s1; make the part again": [*from_parts([of_one]), "--window", 64],
        "its window is 64, in this map it is 128": [*from_parts([part]), "--window", 128],
        "its classes is 0=a, 1=c": [*from_parts([other]), "--window", 64],
        "has no tag part": from_parts([whole]),
        "are the same file of part 1-of-2; give one": from_parts([part, part]),
        f"part 1-of-2 has {part[0]}, but not its probabilities": ["--finished-parts", part[0]],
        "--part is 3-of-2, but a part is its number and the number of all": ["--part", "3-of-2"],
    }
    for sentence, options in refused.items():
        assert stage(*base, *options) != 0
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert not any(path.exists() for path in (tmp_path / "c.tif", tmp_path / "p.tif"))


def test_parts_of_two_models_with_the_same_classes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiles = write_scenes(tmp_path, 1)
    models = [write_model(tmp_path / f"m{seed}", "segmentation", ("a", "b"), seed=seed) for seed in (1, 2)]
    parts = [predict(tmp_path / f"p{n}", model, tiles, "--part", f"{n}-of-2") for n, model in enumerate(models, 1)]
    target = ["--classes", tmp_path / "c.tif", "--probabilities", tmp_path / "p.tif", "--window", 64]
    for number, other in ((0, 1), (1, 0)):
        line = ["predict", "--model", models[number], "--tiles", *tiles, *target, *from_parts(parts)]
        assert stage(*line) == BadInputError.code
        ids = model_id(models[other]), model_id(models[number])
        sentence = f"its model is {ids[0]}, in this map it is {ids[1]}; make the part again"
        assert f"{parts[other][0]} is a part of another map: {sentence}" in capsys.readouterr().err
    assert not any(path.exists() for path in (tmp_path / "c.tif", tmp_path / "p.tif"))


@pytest.fixture
def submit_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to submit from, with a model and scenes in a folder whose name needs quotes."""
    folder = tmp_path / "submit"
    (folder / "in $put").mkdir(parents=True)
    write_model(folder / "in $put/model", "segmentation", ("a", "b"))
    write_scenes(folder / "in $put", 2)
    monkeypatch.chdir(folder)
    return folder


CONDOR = ["condor", "predict", "--parts", 3, "--", "--window", 64, "--classes", "out/classes.tif"]
CONDOR += ["--probabilities", "out/probabilities.tif"]
INPUTS = ["--model", "in $put/model", "--tiles", "in $put/s0.zarr", "in $put/s1.zarr"]


@pytest.mark.exhaustive
def test_jobs_of_htcondor_make_the_map_of_one_job(submit_folder: Path, tmp_path: Path) -> None:
    assert stage(*CONDOR, *INPUTS) == 0
    assert [job.item for job in submit(submit_folder / "condor/parts.sub", submit_folder, tmp_path)] == [
        {"part": "1-of-3"},
        {"part": "2-of-3"},
        {"part": "3-of-3"},
    ]
    assert run_dag(submit_folder / "condor/predict.dag", submit_folder, tmp_path / "pool") == 0
    assert sorted(path.name for path in (submit_folder / "condor/parts").iterdir()) == ["1-of-3", "2-of-3", "3-of-3"]
    folder = submit_folder / "in $put"
    whole = predict(tmp_path / "whole", folder / "model", [folder / "s0.zarr", folder / "s1.zarr"])
    assert digests(map_files(submit_folder / "out")) == digests(whole)
    assert (submit_folder / "out/classes.tif.run.json").is_file()


def test_jobs_of_parts_ask_htcondor_for_a_machine_and_the_join_for_no_gpu(submit_folder: Path, tmp_path: Path) -> None:
    requests = ["--memory-mb", 7000, "--disk-mb", 900, "--gpu", "--image", "eopipe.sif"]
    assert stage(*CONDOR[:4], *requests, *CONDOR[4:], *INPUTS, "--threads", 3, "--device", "cuda") == 0
    names = ("request_cpus", "request_gpus", "request_memory", "request_disk", "container_image", "retry_until")
    part, join = (
        submit(submit_folder / f"condor/{name}.sub", submit_folder, tmp_path)[0] for name in ("parts", "join")
    )
    assert [part[name] for name in names] == ["3", "1", "7000MB", "900MB", "eopipe.sif", "2"]
    assert [join[name] for name in names] == ["1", "", "7000MB", "900MB", "eopipe.sif", "2"]


def test_requests_for_gpus_hold_for_the_parts_and_requirements_for_all_jobs(submit_folder: Path) -> None:
    of_gpus = ["--gpu", "--gpu-memory-mb", 40000, "--gpu-capability", "8.0", "--require-gpus", 'DeviceName != "$(L4)"']
    requests = [*of_gpus, "--requirements", "HasMount =?= true || OpSysMajorVer >= 9"]
    assert stage(*CONDOR[:4], *requests, *CONDOR[4:], *INPUTS) == 0
    part, join = (htcondor2.Submit((submit_folder / f"condor/{name}.sub").read_text()) for name in ("parts", "join"))
    names = ("request_gpus", "gpus_minimum_memory", "gpus_minimum_capability", "require_gpus")
    # The text of the expression that HTCondor's parser reads.
    assert [part.expand(name) for name in names] == ["1", "40000", "8.0", 'DeviceName != "$(L4)"']
    assert [join.get(name) for name in names] == [None] * 4
    for name, fits in (("NVIDIA A100", True), ("$(L4)", False)):
        gpu = {"DeviceName": name, "Fits": classad2.ExprTree(part.expand("require_gpus"))}
        assert classad2.ClassAd(gpu).eval("Fits") is fits
    assert {job.expand("requirements") for job in (part, join)} == {"HasMount =?= true || OpSysMajorVer >= 9"}


def test_a_request_that_htcondor_cannot_read_is_refused(
    submit_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {
        "--gpu-memory-mb is about GPUs, but the job requests none; add --gpu": ["--gpu-memory-mb", 40000],
        "--require-gpus is about GPUs": ["--require-gpus", "Capability > 8.0"],
        "--gpu-memory-mb is '0': input should be greater than or equal to 1": ["--gpu", "--gpu-memory-mb", 0],
        "--gpu-capability is 'sm_80'; give a compute capability such as 8.0": ["--gpu", "--gpu-capability", "sm_80"],
        "--requirements is 'a\\nqueue 9'; give one ClassAd expression in one line": ["--requirements", "a\nqueue 9"],
        "--requirements is 'a \\\\'; give one": ["--requirements", "a \\"],
        "--requirements is ' '; give one": ["--requirements", " "],
        "'eopipe.sif\\nqueue 9' has a line break": ["--image", "eopipe.sif\nqueue 9"],
        "'con\\rdor' has a line break": ["--folder", "con\rdor"],
    }
    of_parser = {"--requirements is '(a'; give one ClassAd expression": ["--requirements", "(a"]}
    for sentence, arguments in (refused | of_parser).items():
        assert stage(*CONDOR[:4], *arguments, *CONDOR[4:], *INPUTS) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    monkeypatch.setitem(sys.modules, "classad2", None)
    for sentence, arguments in refused.items():
        assert stage(*CONDOR[:4], *arguments, *CONDOR[4:], *INPUTS) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in submit_folder.iterdir()] == ["in $put"]


def test_a_map_that_htcondor_cannot_make_in_parts_is_refused(
    submit_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = {
        "--parts is '1': input should be greater than or equal to 2": [*CONDOR[:3], 1, *CONDOR[4:], *INPUTS],
        "--part belongs to the jobs of the parts; remove it": [*CONDOR, *INPUTS, "--part", "1-of-3"],
        "give the folder of the model": [*CONDOR, "--model", "in $put/model/model.json", *INPUTS[2:]],
        f"not {submit_folder}/s0.zarr; use relative paths": [*CONDOR, *INPUTS[:3], submit_folder / "s0.zarr"],
        "has a line break": [*CONDOR, *INPUTS, "--allow", "unit: of\na sensor"],
    }
    for sentence, arguments in refused.items():
        assert stage(*arguments) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (submit_folder / "condor").exists()
