"""What a finished model asks of a config, and what `eopipe init --from` makes of a run or a model."""

import json
import os
import shutil
from datetime import date
from itertools import permutations
from pathlib import Path
from typing import Any

import builders
import pytest
import yaml
from scenery import Run
from test_input_check import write_model

from eopipe.errors import UsageError
from eopipe.models.input_check import TileProperties
from eopipe.models.model_folder import model_id
from eopipe.planning.check_config import check_file
from eopipe.publish import files
from eopipe.run.finished_model import needed_parts
from eopipe.run.images import missing_parts
from eopipe.run.rules import checked
from eopipe.text_files import write_json

BOX = ("15.0", "46.0", "15.052", "46.036")
CONFIG: dict[str, Any] = {
    "model": "model",
    "search": {"url": "https://stac.example.org", "assets": ["vv", "vh"], "bbox": [15.0, 46.0, 15.1, 46.1]},
    "preprocess": {"bands": ["vv", "vh"], "mask": "none", "decibel": True},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of radar backscatter in dB on pixels of 10 m."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model", TileProperties(10.0, ("dB",), ("",)))
    return tmp_path


def changed(**sections: Any) -> dict[str, Any]:
    known = {name: value for name, value in CONFIG.items() if isinstance(value, dict)}
    merged = {
        name: known.get(name, {}) | value if isinstance(value, dict) else value for name, value in sections.items()
    }
    return CONFIG | merged


def test_a_config_of_a_finished_model_needs_no_labels(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    assert check_file(folder / "config.yaml")["model"] == "model"
    assert checked(CONFIG, "config.yaml")["calibration"] is None


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (changed(split={"chip": 16}, folds=3), "maps without a training; remove folds, split"),
        (changed(label={"source": "labels.gpkg", "classes": ["a", "b"]}), "label.classes has a, b, but the model maps"),
        (changed(report={"use": "none"}), "remove report.use"),
        (changed(model="absent"), "absent is not the folder of a model"),
        (changed(calibration="absent.json"), "absent.json"),
        (changed(preprocess={"bands": ["vv"]}), "the model needs the bands vh, which the images will not have"),
        (changed(search={"resolution": 20}), "search.resolution is 20 m, but the model was trained on pixels of 10 m"),
        (changed(report={"colors": ["#000000"]}), "there are 1 colors for 2 classes"),
        (
            changed(composite={"method": "median", "period": "all", "stack": "season", "parts": ["JJA"]}),
            "preprocess.bands is vv, vh, stacked by season JJA",
        ),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_a_download(
    config: dict[str, Any], sentence: str, folder: Path
) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UsageError, match=sentence):
        check_file(folder / "config.yaml")
    with pytest.raises(UsageError, match=sentence):
        checked(config, "config.yaml")


@pytest.mark.parametrize("fitted", [1, 2, 4, 8])
def test_a_calibration_for_more_or_fewer_symmetries_is_refused_before_a_download(fitted: int, folder: Path) -> None:
    content = {"temperature": 1.2, "model": model_id(folder / "model"), "scenes": ["a"], "summary": ""}
    write_json(folder / "calibration.json", content | {"symmetries": fitted})
    for passes in {1, 2, 4, 8} - {fitted}:
        sentence = rf"json is for predict\.symmetries {fitted}, but the config has {passes}$"
        with pytest.raises(UsageError, match=sentence):
            checked(changed(calibration="calibration.json", predict={"symmetries": passes}), "config.yaml")
    assert checked(changed(calibration="calibration.json", predict={"symmetries": fitted}), "config.yaml")


def test_label_classes_in_another_order_than_the_models_are_refused_before_a_download(folder: Path) -> None:
    names = ("bare", "crop", "wood")
    builders.write_model(folder / "of-three", "segmentation", names, bands=("vv", "vh"))
    for order in permutations(names):
        config = changed(model="of-three", label={"source": "labels.gpkg", "classes": [*order]})
        if order == names:
            assert checked(config, "config.yaml")["label"]["classes"]
            continue
        sentence = f"label.classes has {', '.join(order)}, but the model maps bare, crop, wood; .* in its order$"
        with pytest.raises(UsageError, match=sentence):
            checked(config, "config.yaml")


def test_another_unit_or_pixel_size_is_refused_unless_the_config_allows_it(folder: Path) -> None:
    write_model(folder / "power", TileProperties(10.0, ("physical values without a unit",), ("",)))
    other = changed(model="power", search={"resolution": 40})
    with pytest.raises(
        UsageError, match=r"40 m, but .* preprocess\.decibel gives dB, but the model was trained on phys"
    ):
        checked(other, "config.yaml")
    allowed = ["pixel-size: coarse on purpose", "unit: known"]
    assert checked(changed(model="power", search={"resolution": 40}, predict={"allow": allowed}), "config.yaml")


def test_a_config_without_parts_needs_those_of_the_bands_of_its_model(tmp_path: Path) -> None:
    builders.write_model(tmp_path / "model", "segmentation", ("a", "b"), bands=("vv_DJF", "vv_JJA"))
    composite = {"method": "median", "period": "all", "stack": "season", "parts": ()}
    config = {"model": str(tmp_path / "model"), "allow_code": None, "composite": composite}
    spring, summer, winter = date(2024, 4, 1), date(2024, 7, 1), date(2025, 1, 1)
    assert missing_parts(config, [summer, spring], needed_parts(config)) == [
        "the model has bands of DJF, in which period all has no scene; it has scenes in MAM, JJA; "
        "widen search.datetime, since the model needs it"
    ]
    assert missing_parts(config, [summer, winter], needed_parts(config)) == []
    assert needed_parts(config | {"composite": composite | {"method": "none"}}) == ()


@pytest.mark.parametrize("names", [["calibration"], ["allow_code"], ["calibration", "allow_code"]])
def test_settings_of_a_finished_model_without_one_are_refused(names: list[str], folder: Path) -> None:
    config = changed(model=None, label={"source": "x.gpkg", "classes": ["a", "b"]}, **dict.fromkeys(names, "text"))
    with pytest.raises(UsageError, match=f"{' and '.join(names)} belong to a finished model"):
        checked(config, "config.yaml")


def test_a_model_that_names_code_needs_a_permission_before_anything_is_fetched(folder: Path, run: Run) -> None:
    item = folder / "model/model.json"
    item.write_text(item.read_text().replace('"unet"', '"vit.py:ViT"'))
    with pytest.raises(
        UsageError, match=r"names code to run, vit\.py:ViT; read it, and if you trust it set allow_code"
    ):
        checked(CONFIG, "config.yaml")
    completed = run("init", "project", "--from", "model", "--bbox", *BOX, "--url", "https://stac.example.org")
    assert completed.code == 2
    assert "add --allow-code vit.py:ViT" in completed.stderr
    assert not (folder / "project").exists()
    for name in ("vit.py:ViT", "vit:ViT"):
        assert checked(CONFIG | {"allow_code": name}, "config.yaml")["allow_code"] == name


def test_a_model_alone_gives_its_bands_pixels_and_unit(folder: Path, run: Run) -> None:
    source = ["--url", "https://stac.example.org", "--collection", "sentinel-1"]
    completed = run(
        "init", "project", "--from", "model", "--bbox", *BOX, *source, "--datetime", "2024-06-01/2024-07-01"
    )
    assert completed.code == 0, completed.stderr
    config = yaml.safe_load((folder / "project/config.yaml").read_text())
    assert config["search"]["assets"] == config["preprocess"]["bands"] == ["vv", "vh"]
    assert (config["search"]["crs"], config["search"]["resolution"]) == ("EPSG:32633", 10.0)
    assert config["preprocess"]["decibel"] is True
    assert "calibration" not in config
    original, copy = (
        json.loads((path / "model.json").read_text()) for path in (folder / "model", folder / "project/model")
    )
    assert original == copy
    assert run("check", "project").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "nothing", "--bbox", *BOX], "nothing has no finished model"),
        (["--from", "model"], "init needs --area or --bbox"),
        (["--from", "model", "--bbox", *BOX, "--classes", "a", "b"], "and needs no labels; omit --classes"),
        (["--from", "model", "--bbox", *BOX, "--area", "a.geojson"], "--area or --bbox, not both"),
        (["--from", "model", "--bbox", *BOX, "--datetime", "summer"], "summer"),
    ],
)
def test_init_from_what_is_no_model_or_with_options_of_a_training_writes_nothing(
    arguments: list[str], sentence: str, folder: Path, run: Run
) -> None:
    completed = run("init", "project", *arguments)
    assert completed.code in (2, 3)
    assert sentence in completed.stderr
    assert not (folder / "project").exists()


SOURCE = ("--url", "https://stac.example.org", "--collection", "sentinel-1", "--datetime", "2024-06-01")


def test_of_a_model_folder_the_files_of_its_manifest_are_copied(folder: Path, run: Run) -> None:
    original = {path.relative_to(folder / "model").as_posix() for path in files(folder / "model")}
    (folder / "model/parts").mkdir()
    for name in ("parts/code.py", "README.md", ".env", "parts/.key"):
        (folder / "model" / name).write_text(name)
    os.mkfifo(folder / "model/pipe")
    (folder / "id_rsa").write_text("a private key")
    (folder / "model/LICENSE").symlink_to(folder / "id_rsa")
    (folder / "model/more").symlink_to(folder)
    completed = run("init", "project", "--from", "model", "--bbox", *BOX, *SOURCE)
    assert completed.code == 0, completed.stderr
    copied = {path.relative_to(folder / "project/model").as_posix() for path in files(folder / "project/model")}
    assert copied == original


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_link_in_a_model_folder_publishes_no_other_file(folder: Path, run: Run, has_manifest: bool) -> None:
    history = folder / "model/history.json"
    (folder / "id_rsa").write_bytes(b"a" * (history.stat().st_size if history.exists() else 9))
    history.unlink(missing_ok=True)
    history.symlink_to(folder / "id_rsa")
    if not has_manifest:
        (folder / "model/manifest.json").unlink()
    completed = run("init", "project", "--from", "model", "--bbox", *BOX, *SOURCE)
    expected = (4, "history.json") if has_manifest else (8, "is a link out of the folder of the model")
    assert (completed.code, expected[1] in completed.stderr) == (expected[0], True), completed.stderr
    assert not (folder / "project").exists()


def test_a_damaged_model_is_one_sentence(folder: Path, run: Run) -> None:
    (folder / "model/model.json").write_text("{}")
    completed = run("init", "project", "--from", "model", "--bbox", *BOX)
    assert completed.code in (2, 3), completed.stderr
    assert completed.stderr.count("\n") == 1
    shutil.rmtree(folder / "model")
    assert run("init", "project", "--from", "model", "--bbox", *BOX).code == 3
