"""The Python API on a finished run: chips for a training loop, a model for arrays, scores for a table."""

import doctest
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
import xarray
import zarr
from projects import ROOT, Project, environment
from torch.utils.data import DataLoader

import eopipe
from eopipe.chips.chips import apply_symmetry, fill_nearest
from eopipe.cli import main
from eopipe.errors import BadInputError, UsageError
from eopipe.publish import sha256

CLIENT = """\
import numpy as np
import eopipe

chips = eopipe.open_chips("results", "val")
image, labels = chips[0]
edge: int = image.shape[-1]
model = eopipe.load_model("results")
shape: tuple[int, ...] = model.predict(np.zeros((4, 8, 8), np.float32)).shape
names: tuple[object, ...] = model.predict(eopipe.open_cube("results")).dims
accuracy: float | None = eopipe.read_metrics("results")["accuracy"].value
"""
WIDE = """\
import torch


class Wide(torch.nn.Conv2d):
    reach, factor = 1, 1

    def __init__(self, bands, classes):
        super().__init__(bands, classes, 3, padding=1)
"""
MISTAKES = """\
import eopipe

eopipe.open_chips("results", "tests")
eopipe.read_metrics("results").accuracy
"""


@pytest.mark.parametrize("name", sorted(set(eopipe.API.values()) - {"eopipe.inspection.cube"}))
def test_the_examples_of_the_api_are_true_of_a_run(name: str, demo: Project) -> None:
    with chdir(demo.folder):
        failed, count = doctest.testmod(importlib.import_module(name))
    assert count
    assert not failed


def test_the_blocks_of_the_page_run(demo: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for a script in this folder.
    monkeypatch.syspath_prepend(demo.folder)
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    with chdir(demo.folder):
        for block in blocks:
            exec(compile(block, "docs/python.md", "exec"), {})


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", sorted((ROOT / "docs/notebooks").glob("*.ipynb")), ids=lambda path: str(path.stem))
def test_the_cells_of_a_notebook_run_after_the_demo(path: Path, demo: Project, tmp_path: Path) -> None:
    for name in ("results", "sample"):
        (tmp_path / name).symlink_to(demo.folder / name)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in (cells[0], cells[-1])), "run it with its outputs before it is committed"
    (tmp_path / "cells.py").write_text("\n".join("".join(cell["source"]) for cell in cells))
    # Lightning is among the libraries of the models that tests train.
    folders = [str(ROOT / "tests/libraries"), str(ROOT / ".venv/libraries")]
    variables = environment() | {"MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join([*folders, str(ROOT)])}
    command = [sys.executable, "cells.py"]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if path.stem == "figure-and-table":
        assert (tmp_path / "figure.png").stat().st_size > 20_000
        assert "| model | 0." in done.stdout
        assert "| model minus " in done.stdout
    else:
        accuracy = re.search(r"accuracy in the validation areas: ([\d.]+)", done.stdout)
        assert accuracy
        assert float(accuracy[1]) > 0.8
        assert "the weights of the plain loop: True" in done.stdout


def test_a_chip_is_the_pixels_of_its_store_normalised_by_the_training_chips(finished: Project) -> None:
    chips = eopipe.open_chips(finished.results, "test")
    split = json.loads((finished.results / "split.json").read_text())
    bands = json.loads((finished.results / "statistics.json").read_text())["bands"]
    assert len(chips) == len(split["samples"]["test"]) > 0
    for number in (0, len(chips) // 2, -1):
        scene, row, column = split["samples"]["test"][number]
        image, labels = chips[number]
        window = np.s_[..., row : row + split["chip"], column : column + split["chip"]]
        stored, valid, label = (
            zarr.open_array(finished.results / name, mode="r")
            for name in (
                *(f"tiles/{split['scenes'][scene]}.zarr/{array}" for array in ("image", "valid")),
                "labels/all.zarr/label",
            )
        )
        physical = np.asarray(stored[window]) * float(str(stored.attrs["scale_factor"]))
        is_valid = np.asarray(valid[window]) == 1
        mean, deviation = (np.array([bands[band][key] for band in chips.bands]) for key in ("mean", "std"))
        expected = np.where(is_valid, (physical - mean[:, None, None]) / deviation[:, None, None], 0)
        assert np.abs(image.numpy() - expected).max() < 1e-4
        assert np.array_equal(labels.numpy(), np.where(is_valid, label[window], 255))


def test_an_epoch_has_each_training_chip_once_transformed_by_a_symmetry(finished: Project) -> None:
    chips = eopipe.open_chips(finished.results, "train", seed=3)
    plain = [chips[number][0].numpy() for number in range(len(chips))]
    chips.set_epoch(2)
    epoch = [image for image, _ in DataLoader(chips, batch_size=None)]
    forms = {apply_symmetry(image, symmetry).tobytes(): n for n, image in enumerate(plain) for symmetry in range(8)}
    order = [forms[image.numpy().tobytes()] for image in epoch]
    assert sorted(order) == [*range(len(chips))]
    assert order != sorted(order)
    again = eopipe.open_chips(finished.results, "train", seed=3)
    again.set_epoch(2)
    with_workers = [image for image, _ in DataLoader(again, batch_size=None, num_workers=2)]
    assert all(torch.equal(first, second) for first, second in zip(epoch, with_workers, strict=True))
    again.set_epoch(3)
    assert not all(torch.equal(image, again[number][0]) for number, image in enumerate(epoch))


def test_a_crop_is_around_a_labelled_pixel(finished: Project) -> None:
    chips = eopipe.open_chips(finished.results, "train", crop=8)
    assert chips[0][0].shape[1:] == (16, 16)
    chips.set_epoch(0)
    for image, labels in DataLoader(chips, batch_size=None):
        assert image.shape[1:] == labels.shape == (8, 8)
        assert (labels != 255).any()


def test_a_model_predicts_for_a_cube_what_the_stage_maps(finished: Project) -> None:
    model, cube = eopipe.load_model(finished.results), eopipe.open_cube(finished.results)
    predicted = model.predict(cube)
    assert predicted.dims == ("time", "class", "y", "x")
    for name in ("y", "x", "time", "scene"):
        assert predicted[name].equals(cube[name])
    assert predicted["class"].values.tolist() == [*model.classes]
    assert np.array_equal(np.isfinite(predicted.values).all(1), cube["valid"].values)
    with rasterio.open(finished.results / "maps/mosaic/classes.tif") as file:
        mapped = file.read(1)
    is_covered = cube["valid"].values.any(0)
    mean = np.nansum(predicted.values, 0)
    assert np.array_equal(is_covered, mapped != 255)
    assert (mean.argmax(0) == mapped)[is_covered].mean() > 0.999


def test_a_model_of_another_loop_is_mapped_by_the_stage_and_by_python(finished: Project, tmp_path: Path) -> None:
    chips, cube = eopipe.open_chips(finished.results), eopipe.open_cube(finished.results)
    (tmp_path / "wide.py").write_text(WIDE)
    torch.manual_seed(1)
    module = torch.nn.Conv2d(len(chips.bands), len(chips.classes), 3, padding=1)
    code = {"model_files": [tmp_path / "wide.py"]}
    eopipe.save_model(tmp_path / "model", module.state_dict(), chips, "wide.py:Wide", **code)
    model = eopipe.load_model(tmp_path / "model", allow_code="wide.py:Wide")
    predicted = model.predict(cube).values
    mean, deviation = (np.reshape(values, (-1, 1, 1)) for values in (chips.normaliser.mean, chips.normaliser.std))
    valid = cube["valid"].values
    # Beside a valid pixel the model sees the nearest valid ones, also beyond the raster.
    edges = (0, 0), (1, 1), (1, 1)
    images = np.pad(((cube["image"].values - mean) / deviation).astype(np.float32), ((0, 0), *edges))
    for image, has_data in zip(images, np.pad(valid, edges), strict=True):
        fill_nearest(image, has_data)
    with torch.inference_mode():
        expected = module(torch.from_numpy(images)).softmax(1).numpy()[..., 1:-1, 1:-1]
    assert np.abs(predicted - expected)[np.broadcast_to(valid[:, None], predicted.shape)].max() < 1e-5
    target = [str(tmp_path / name) for name in ("classes.tif", "probabilities.tif")]
    tiles = sorted(map(str, (finished.results / "tiles").glob("*.zarr")))
    arguments = ["--model", str(tmp_path / "model"), "--tiles", *tiles, "--allow-code", "wide.py:Wide"]
    assert main(["predict", *arguments, "--classes", target[0], "--probabilities", target[1]]) == 0
    with rasterio.open(target[1]) as file:
        mapped = file.read() / 10_000
    covered = valid.any(0)
    mean_over_time = np.nansum(predicted, 0)[:, covered] / valid.sum(0)[covered]
    assert np.abs(mapped[:, covered] - mean_over_time).max() < 1e-4
    narrow = {name: tensor[..., :1] for name, tensor in module.state_dict().items()}
    with pytest.raises(BadInputError, match=r"the weights do not fit wide\.py:Wide"):
        eopipe.save_model(tmp_path / "other", narrow, chips, "wide.py:Wide", **code)
    assert not (tmp_path / "other").exists()


def test_arrays_without_names_have_the_bands_in_the_order_of_the_model(finished: Project) -> None:
    model, cube = eopipe.load_model(finished.results), eopipe.open_cube(finished.results)
    image = cube["image"].where(cube["valid"]).sel(band=[*model.bands])
    assert np.array_equal(model.predict(image.values), model.predict(cube).values, equal_nan=True)
    reversed_bands = image.isel(band=slice(None, None, -1), time=0)
    assert np.array_equal(model.predict(reversed_bands).values, model.predict(image.values[0]), equal_nan=True)


def test_scores_are_those_of_the_metrics_file(finished: Project) -> None:
    metrics = eopipe.read_metrics(finished.results)
    document = json.loads((finished.results / "metrics.json").read_text())
    for name in ("accuracy", "miou", "f1_macro", "kappa"):
        interval = (document["intervals"]["model"].get(name) if document.get("intervals") else None) or [None, None]
        assert metrics[name][3:] == (document["model"][name], *interval)
    rows = {(row.method, row.class_name, row.name): row.value for row in metrics.scores}
    assert rows["model", metrics.classes[1], "recall"] == document["model"]["per_class"][metrics.classes[1]]["recall"]
    assert rows["boosted trees on bands", "", "accuracy"] == document["pixel_baseline"]["accuracy"]
    (gain,) = metrics.gain("miou").values()
    assert gain.value == document["model"]["miou"] - document[document["baseline"]["name"]]["miou"]
    with pytest.raises(KeyError, match="there are accuracy, miou"):
        metrics["rmse"]


def test_objects_have_a_table_in_a_notebook_whose_texts_are_escaped(finished: Project) -> None:
    for shown_object in (
        eopipe.open_chips(finished.results, "val"),
        eopipe.load_model(finished.results),
        eopipe.read_metrics(finished.results),
    ):
        html = shown_object._repr_html_()
        assert "<table>" in html
        assert repr(shown_object)[1:-1] in html


def test_what_cannot_be_read_is_named(finished: Project, tmp_path: Path) -> None:
    model = eopipe.load_model(finished.results)
    with pytest.raises(BadInputError, match=r"has no split\.json"):
        eopipe.open_chips(tmp_path)
    with pytest.raises(BadInputError, match=r"there is no .*metrics\.json"):
        eopipe.read_metrics(tmp_path)
    with pytest.raises(UsageError, match="there is no split tests; use train, val or test"):
        eopipe.open_chips(finished.results, "tests")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="only chips of train have epochs"):
        eopipe.open_chips(finished.results, "test").set_epoch(0)
    with pytest.raises(BadInputError, match=r"has shape \(2, 8, 8\); give .* with the 4 bands"):
        model.predict(np.zeros((2, 8, 8), np.float32))
    named = xarray.DataArray(np.zeros((1, 8, 8), np.float32), {"band": ["blue"]}, ("band", "y", "x"))
    with pytest.raises(BadInputError, match="has no band"):
        model.predict(named)
    with pytest.raises(BadInputError, match="but no band"):
        model.predict(named.isel(band=0))
    with pytest.raises(BadInputError, match="has no names of its bands"):
        model.predict(named.drop_vars("band"))


def test_the_package_loads_nothing_before_it_is_used() -> None:
    code = "import eopipe, sys; print([n for n in ('numpy', 'torch', 'xarray') if n in sys.modules], dir(eopipe))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("[] [")
    assert all(repr(name) in printed for name in eopipe.API)


@pytest.mark.exhaustive
def test_a_client_of_the_api_is_typed(tmp_path: Path) -> None:
    for name, text in (("client.py", CLIENT), ("mistakes.py", MISTAKES)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    # mypy does not see packages that are installed as editable; of others it reports no error either.
    command.append("--follow-imports=silent")
    variables = os.environ | {"MYPYPATH": str(ROOT)}

    def checked(name: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, name], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    done = checked("client.py")
    assert done.returncode == 0, done.stdout
    done = checked("mistakes.py")
    assert 'Argument 2 to "open_chips"' in done.stdout
    assert '"Metrics" has no attribute "accuracy"' in done.stdout


def test_two_runs_are_compared_by_their_settings_and_on_the_pixels_that_both_test(
    finished: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(finished.folder, other, symlinks=True)
    results = other / "results"
    record = json.loads((results / "model.run.json").read_text())
    record["settings"] |= {"seed": 7, "checkpoint_every": 9}
    (results / "model.run.json").write_text(json.dumps(record))
    # Of a run with absolute paths, which was copied.
    evaluation = json.loads((results / "metrics.json.run.json").read_text())
    results_path = str(finished.folder / "results")
    evaluation["arguments"] = [re.sub(r"^results(?=/)", results_path, word) for word in evaluation["arguments"]]
    (results / "metrics.json.run.json").write_text(json.dumps(evaluation))
    (mapped,) = results.glob("maps/*/classes.tif")
    with rasterio.open(mapped) as file:
        pixels, profile, tags = file.read(1), file.profile, file.tags()
    changed = np.where(pixels == 255, 255, 0).astype(np.uint8)
    mapped.unlink()
    with rasterio.open(mapped, "w", **profile) as file:
        file.write(changed, 1)
        file.update_tags(**tags)
    page, table = tmp_path / "compared.html", tmp_path / "compared.json"
    runs = [str(finished.folder), str(results)]
    assert main(["compare", *runs]) == 4
    sentence = "is not the map that was evaluated, by the record; run evaluate again"
    assert f"{mapped} {sentence}" in capsys.readouterr().err
    for row in evaluation["inputs"]:
        row["sha256"] = sha256(mapped) if row["port"] == "classes" else row["sha256"]
    (results / "metrics.json.run.json").write_text(json.dumps(evaluation))
    assert main(["compare", *runs, "--page", str(page), "--json", str(table)]) == 0
    output, document = capsys.readouterr().out, json.loads(table.read_text())
    metrics = json.loads((finished.folder / "results/metrics.json").read_text())
    scored = document["runs"][0]["scores"]
    assert document["samples"] == metrics["test_pixels"]
    for key in ("accuracy", "miou"):
        assert scored[key] == pytest.approx(metrics["model"][key], abs=2e-6)
    # All pixels are of the first class.
    share = np.array(metrics["model"]["confusion"])[0].sum() / metrics["test_pixels"]
    assert document["runs"][1]["scores"]["accuracy"] == pytest.approx(share, abs=1e-6)
    assert document["settings"] == {"train.seed": ["0", "7"]}
    assert re.search(r"^train\.seed +0 +7$", output, re.MULTILINE), "and the interval of checkpoints changes no result"
    assert "other minus finished (95 %)" in output
    assert '<th scope="row">train.seed</th><td>0</td><td>7</td>' in page.read_text()
    assert main(["compare", runs[0]]) == 2
    assert main(["compare", runs[0], str(tmp_path)]) == 3
    assert f"{tmp_path} has no scores: give the results of a finished run" in capsys.readouterr().err
