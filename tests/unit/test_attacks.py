"""Models, records and folders from somebody else run no code and write nothing outside of their folder.

Each attack would leave the file `marker`; the rows of SECURITY.md name the tests here that hold them.
"""

import hashlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyogrio.raw
import pytest
import rasterio
import shapely
import torch
from builders import write_model
from loopback import Loopback
from pyarrow import parquet
from rasterio.transform import from_origin
from remote_assets import item_of
from safetensors.torch import save_file
from scenery import Catalog, Completed, Run
from stores import make_scene

import eopipe
from eopipe import text_files
from eopipe.contract import stage, to_args
from eopipe.errors import BadInputError, EopipeError, RefusedError
from eopipe.labels import vector_files
from eopipe.labels.vector_files import read_file
from eopipe.labels.vectors import read_features
from eopipe.launch.failures import read_failure
from eopipe.models import Architecture
from eopipe.models.model_folder import read_weights
from eopipe.provenance.crate import readme
from eopipe.provenance.crate_reader import RunCrate
from eopipe.provenance.graph import CrateDescription
from eopipe.provenance.jobs import HostClass, RecordedData, RecordedJob, RunRecord
from eopipe.provenance.record import commit
from eopipe.provenance.rerun import CrateRerun
from eopipe.publish import sha256, write_manifest
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.store import Tiles

BANDS, CLASSES, WEIGHTS = ("red", "nir"), ("x", "y", "z"), "model.safetensors"
NET = """\
import pathlib, torch
pathlib.Path("marker").touch()
class Net(torch.nn.Conv2d):
    def __init__(self, bands, classes):
        super().__init__(bands, classes, 1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder of its own; no attack leaves its marker there."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield work
    assert not (work / "marker").exists()


@pytest.fixture
def tiles(folder: Path) -> Path:
    """A small tile store."""
    return make_scene(folder, "a", BANDS)[0]


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def given_model(folder: Path, change: Callable[[dict[str, Any]], None] = lambda item: None) -> Path:
    """A model folder of somebody else, with consistent digests, whose `model.json` was changed."""
    write_model(folder, "segmentation", CLASSES, bands=BANDS, mean=0.0, std=1.0, chip=16)
    change_json(folder / "model.json", change)
    return with_manifest(folder)


def with_manifest(folder: Path) -> Path:
    (folder / "manifest.json").unlink(missing_ok=True)
    write_manifest(folder)
    return folder


def with_checksum(model: Path) -> Path:
    """A model whose item and manifest state the digest of its weights."""
    checksum = {"file:checksum": f"1220{sha256(model / WEIGHTS)}"}
    change_json(model / "model.json", lambda item: item["assets"]["model"].update(checksum))
    return with_manifest(model)


def module(item: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = item["properties"]["mlm:hyperparameters"]["model"]
    return settings


def predict(run: Run, model: Path, tiles: Path, *options: object) -> Completed:
    maps = ("--classes", "c.tif", "--probabilities", "p.tif")
    return run("predict", "--model", model, "--tiles", tiles, *maps, *options)


# Models


def names(architecture: str, *arguments: str) -> Callable[[dict[str, Any]], None]:
    def change(item: dict[str, Any]) -> None:
        item["properties"]["mlm:architecture"] = architecture
        module(item)["arguments"] = list(arguments)

    return change


CODE_NAMES = [
    ("subprocess:run", 'args=["touch","marker"]'),
    ("os:system", "command=touch marker"),
    ("torch.hub:load", "repo_or_dir=."),
    ("builtins:exec", "source=open('marker','w')"),
    ("eopipe.models.networks:UNet",),
    ("torch.nn:Identity",),
]


@pytest.mark.parametrize("words", CODE_NAMES, ids=lambda words: words[0])
def test_a_given_model_that_names_code_is_refused_with_what_to_type(
    words: tuple[str, ...], folder: Path, tiles: Path, run: Run
) -> None:
    model = given_model(folder / "model", names(*words))
    of_map = ("--tiles", tiles, "--classes", "c.tif", "--probabilities", "p.tif")
    commands: list[Sequence[object]] = [
        *(("predict", "--model", path, *of_map) for path in (model, model / "model.json")),
        ("export", "--model", model, "--tiles", tiles, "--onnx", "m.onnx", "--check", "m.json"),
    ]
    for command in commands:
        run(*command).ends(8, f"names code to run, {words[0]}", f"--allow-code {words[0]}")


@pytest.mark.parametrize("words", CODE_NAMES[:4], ids=lambda words: words[0])
def test_what_is_not_a_module_of_torch_is_not_called_even_if_it_is_allowed(
    words: tuple[str, ...], folder: Path, tiles: Path, run: Run
) -> None:
    predict(run, given_model(folder / "model", names(*words)), tiles, "--allow-code", words[0]).ends(
        2, f"model {words[0]} is not a torch.nn.Module"
    )


def model_with_code(folder: Path, file: str = "net.py", name: str = "net:Net") -> Path:
    """A given model with code of its own, whose digests are right."""

    def change(item: dict[str, Any]) -> None:
        names(name)(item)
        module(item)["files"] = {f"code/{file}": hashlib.sha256(NET.encode()).hexdigest()}

    model = given_model(folder, change)
    (model / "code").mkdir()
    (model / "code" / file).write_text(NET)
    save_file({f"model.{key}": value for key, value in torch.nn.Conv2d(2, 3, 1).state_dict().items()}, model / WEIGHTS)
    return with_checksum(model)


def test_the_code_of_a_model_folder_runs_only_if_its_class_is_allowed_by_name(
    folder: Path, tiles: Path, run: Run
) -> None:
    model = model_with_code(folder / "model")
    for options in ((), ("--allow-code", "net:Other"), ("--allow-code", "unet")):
        predict(run, model, tiles, *options).ends(8, "--allow-code net:Net")
        assert not (folder / "marker").exists()
    assert predict(run, model, tiles, "--allow-code", "net:Net").code == 0
    assert (folder / "marker").exists(), "the test itself would not notice code that runs"
    assert predict(run, model, tiles, "--allow-code", "net.py:Net").code == 0, "it is the same class"
    (folder / "marker").unlink()


def test_in_python_the_permission_is_an_argument_and_the_error_names_it(folder: Path) -> None:
    model = model_with_code(folder / "model")
    loaded, image = eopipe.load_model(model), np.zeros((2, 16, 16), np.float32)
    with pytest.raises(RefusedError, match=r"if you trust it and its arguments add allow_code='net:Net'$"):
        loaded.predict(image)
    assert not (folder / "marker").exists()
    assert eopipe.load_model(model, allow_code="net.py:Net").predict(image).shape == (3, 16, 16)
    (folder / "marker").unlink()


@pytest.mark.parametrize("library", ["torch", "json"])
def test_code_that_has_the_name_of_a_library_does_not_run_in_its_place(
    library: str, folder: Path, tiles: Path, run: Run
) -> None:
    model = model_with_code(folder / "model", f"{library}.py", f"{library}:Net")
    predict(run, model, tiles, "--allow-code", f"{library}:Net").ends(8, "has the name of an installed library")


class Bomb:
    """Unpickled, it leaves the marker."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch marker",)


def test_a_pickle_in_the_place_of_weights_is_not_read(folder: Path, tiles: Path, run: Run) -> None:
    model = given_model(folder / "model")
    (model / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    assert predict(run, with_checksum(model), tiles).code == 3


@pytest.mark.parametrize("href", ["../secret.safetensors", "/etc/passwd", "file:///etc/passwd", "..\\secret", "-rf"])
def test_weights_outside_of_the_model_are_not_read(href: str, folder: Path, tiles: Path, run: Run) -> None:
    (folder / "secret.safetensors").write_bytes(b"secret")
    model = given_model(folder / "model", lambda item: item["assets"]["model"].update(href=href))
    completed = predict(run, model, tiles)
    assert completed.code in (3, 8), completed.stderr
    assert "this is a bug" not in completed.stderr


def setting(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda item: module(item).update({name: value})


def scaling(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda item: item["properties"]["mlm:input"][0]["value_scaling"][0].update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (setting("width", 10**7), "width has 10000000"),
        (setting("width", 4096), "do not fit"),
        (setting("depth", 40), "depth has 40"),
        (setting("depth", 6), "do not fit"),
        (setting("width", "x"), "that no model has"),
        (setting("arguments", "abc"), "that no model has"),
        (scaling("stddev", 0), "std has 0"),
        (scaling("mean", "a"), "that no model has"),
        (lambda item: item["properties"].update({"mlm:architecture": None}), "that no model has"),
        (lambda item: item["properties"]["mlm:input"][0].update(bands=5), "that no model has"),
    ],
)
def test_a_model_of_absurd_sizes_or_types_is_refused_before_it_takes_memory(
    change: Callable[[dict[str, Any]], None], message: str, folder: Path, tiles: Path, run: Run
) -> None:
    predict(run, given_model(folder / "model", change), tiles).ends(3, message)


def test_weights_to_start_from_run_no_code_of_their_model(folder: Path) -> None:
    model = model_with_code(folder / "model")
    weights = read_weights(model)
    architecture = Architecture("torch.nn:Conv2d", 2, 3, 4, 1, (), ("kernel_size=1", "out_channels=3"))
    architecture.build().load_state_dict(weights)


MODEL = RecordedData(port="model", name="model", folder=True, bytes=1, files=1, sha256="a" * 64)


@pytest.mark.parametrize(
    ("name", "settings", "inputs", "code"),
    [
        ("train", {"architecture": "net.py:Net"}, (), r"net\.py:Net"),
        *((name, {}, (MODEL,), "net:Net.* add --allow-code net:Net") for name in ("predict", "calibrate", "export")),
    ],
)
def test_a_job_of_a_crate_that_builds_a_custom_model_is_not_rerun_without_permission(
    folder: Path, name: str, settings: dict[str, str], inputs: tuple[RecordedData, ...], code: str
) -> None:
    place = HostClass(system="", machine="", cores=None, job="")
    record = RunRecord(
        stage=name, version="", status="completed", error="", start="", end="", arguments=(), inputs=inputs,
        outputs=(), settings=settings, usage={}, place=place, software={},
    )  # fmt: skip
    crate = RunCrate(folder, {}, (RecordedJob(record, ""),), frozenset())
    available = {data.key: model_with_code(folder / "model") for data in inputs}
    for allowed in (None, "net.py:Other", "unet"):
        with pytest.raises(RefusedError, match=f"{name} of .* names code to run, {code}"):
            CrateRerun(crate, folder / "again", allowed, available=available).check_permission()
    CrateRerun(crate, folder / "again", "net.py:Net", available=available).check_permission()


# Run records


def record(path: Path, arguments: Sequence[str], **outputs: str) -> None:
    """Write the run record of somebody else beside the output that it claims."""
    rows = [{"port": port, "name": name, "folder": False, "sha256": "0" * 64} for port, name in outputs.items()]
    path.write_text(json.dumps({"arguments": ["eopipe", *arguments], "outputs": rows, "stage": arguments[0]}))


def search(folder: Path, *other: str) -> list[str]:
    outputs = ("--items", "results/items", "--grid", "results/grid.json", "--selection", "results/s.json")
    return ["search", "--catalog", str(folder / "catalog"), "--assets", "red", *outputs, *other]


@pytest.mark.parametrize("way", ["absolute", "parent", "link", "repeated", "selection"])
def test_a_repair_writes_nothing_outside_of_the_folder_that_was_surveyed(
    way: str, folder: Path, catalog: Catalog, run: Run
) -> None:
    catalog.add("A")
    source = catalog.write()
    victim, results = folder / "home" / "victim", folder / "results"
    victim.parent.mkdir()
    victim.write_text("mine")
    results.mkdir()
    (results / "link").symlink_to(victim.parent)
    grid = {"absolute": str(victim), "parent": "results/../home/victim", "link": "results/link/victim"}
    words = ["search", "--catalog", str(source), "--assets", "red", "--items", "results/items", "--selection"]
    words += [str(victim) if way == "selection" else "results/s.json"]
    words += ["--grid", grid.get(way, "results/grid.json")]
    words += ["--grid", str(victim)] if way == "repeated" else []
    record(results / "items.run.json", words, items="items")
    run("verify", "results", "--repair").ends(8, "outside of")
    assert victim.read_text() == "mine"
    assert not (results / "items").exists()


def test_a_repair_ignores_the_folders_of_knobs_in_a_record(folder: Path, catalog: Catalog, run: Run) -> None:
    catalog.add("A")
    source, results = catalog.write(), folder / "results"
    assert run(*search(source.parent), "--catalog", source).code == 0
    words = ["fetch", "--item", "results/items/A.geojson", "--catalog", str(source), "--scene", "results/A"]
    record(results / "A.run.json", [*words, "--parts", str(folder / "elsewhere")], scene="A")
    # The scene is missing, so that it is fetched again.
    run("verify", "results", "--repair")
    assert (results / "A/manifest.json").is_file()
    assert not (folder / "elsewhere").exists()


def test_a_repair_moves_nothing_through_a_link(folder: Path, catalog: Catalog, run: Run) -> None:
    catalog.add("A")
    source, home = catalog.write(), folder / "home"
    home.mkdir()
    assert run(*search(source.parent), "--catalog", source).code == 0
    (folder / "results/items/autostart").write_text("evil")
    (folder / "results/items.extra").symlink_to(home)
    assert run("verify", "results", "--repair").code == 8
    assert not list(home.iterdir())


@pytest.mark.exhaustive
def test_a_repair_runs_the_code_of_a_custom_model_only_if_it_is_allowed(folder: Path, tiles: Path, run: Run) -> None:
    results = folder / "results"
    results.mkdir()
    model_with_code(results / "model")
    words = ["predict", "--model", "results/model", "--tiles", str(tiles), "--classes", "results/c.tif"]
    words += ["--probabilities", "results/p.tif", "--allow-code", "net:Net"]
    record(results / "c.tif.run.json", words, classes="c.tif", probabilities="p.tif")
    completed = run("verify", "results", "--repair")
    assert completed.code != 0
    training = ["train", "--tiles", str(tiles), "--labels", "l", "--chips", "s", "--statistics", "s", "--model"]
    record(results / "m.run.json", [*training, "results/m", "--architecture", "subprocess:run"], model="m")
    run("verify", "results/m", "--repair").ends(8, "--allow-code subprocess:run")


@pytest.mark.parametrize(
    "words", [["sh", "-c", "touch marker"], ["run", "--snakefile", "evil"], ["init", "results/m"], ["search", "--help"]]
)
def test_a_repair_runs_stages_only(words: list[str], folder: Path, run: Run) -> None:
    (folder / "results").mkdir()
    record(folder / "results/m.run.json", [*words, "--grid", "results/m"], grid="m")
    assert run("verify", "results", "--repair").code in (2, 3, 4)


def test_a_value_that_looks_like_an_option_becomes_none() -> None:
    ports = {port.name: port for port in stage("predict").ports}
    for name, value in (("colors", ("#ffffff", "--allow-code", "a:b")), ("allow_code", "--model=/victim")):
        with pytest.raises(RefusedError, match="would take for an option"):
            to_args(ports[name], value)
    bbox = next(port for port in stage("search").ports if port.name == "bbox")
    assert to_args(bbox, (-1.5, 2.0)) == ["--bbox", "-1.5", "2.0"]


# Folders


def test_modules_of_a_folder_are_not_imported_by_a_repair(folder: Path, catalog: Catalog, run: Run) -> None:
    catalog.add("A")
    source = catalog.write()
    assert run(*search(source.parent), "--catalog", source).code == 0
    (folder / "results/grid.json").unlink()
    for name in ("json", "yaml", "statistics", "eopipe"):
        (folder / f"{name}.py").write_text("open('marker', 'w')\nraise SystemExit('run')\n")
    run("verify", "results", "--repair").ends(0)
    assert (folder / "results/grid.json").is_file()


def test_every_python_that_eopipe_starts_leaves_the_working_folder_off_its_path() -> None:
    root = Path(__file__).parents[2] / "eopipe"
    calls = [call for path in root.rglob("*.py") for call in path.read_text().split("sys.executable,")[1:]]
    assert calls
    assert [call[:60] for call in calls if '"-m"' in call[:60] and not call.lstrip().startswith('"-P",')] == []


GIT_ATTACKS = {
    "fsmonitor": [("core.fsmonitor", "touch marker; false")],
    "hooks": [("core.hooksPath", ".")],
    "filter": [("filter.evil.clean", "touch marker; cat"), ("filter.evil.required", "true")],
    "process": [("filter.evil.process", "touch marker; false")],
    "include": [("include.path", "../more")],
    "remote": [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ext::sh -c 'touch marker'"),
        ("protocol.ext.allow", "always"),
    ],
}


@pytest.mark.parametrize("attack", GIT_ATTACKS)
def test_the_git_settings_of_a_folder_start_no_program(attack: str, folder: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)

    (folder / "a").write_text("a")
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "post-index-change").write_text("#!/bin/sh\ntouch marker\n")
    (folder / "post-index-change").chmod(0o755)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "x")
    (folder / "more").write_text('[filter "evil"]\n\tclean = touch marker; cat\n')
    for name, value in GIT_ATTACKS[attack]:
        git("config", name, value)
    if attack == "remote":
        for path in (folder / ".git/objects").glob("??/*"):
            path.unlink()
    # Another size and time, so that git reads it again.
    (folder / "a").write_text("b")
    os.utime(folder / "a", (1, 1))
    head = commit(folder)
    if attack != "remote":
        assert head.endswith("+")


# Catalogs, configs and files


ALIASES = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
SECTIONS = "search: {{catalog: c, assets: [red]}}\nlabel: {{source: l.gpkg, classes: [a, b]}}\n{}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 20_000, "is nested too deeply"),
        (ALIASES, "aliases that expand to more than"),
        ("a: &a [*a]\n", "aliases that expand to more than"),
        ("results: !!python/object/apply:os.system ['touch marker']\n", "is not valid YAML"),
        (SECTIONS.format("train: {learning_rate: .inf}"), "train.learning_rate is inf: write a number"),
        (SECTIONS.format("train: {width: 10000000}"), "train.width is 10000000: write at most 4096"),
        (SECTIONS.format("split: {fractions: [0, 0, 0]}"), "split.fractions gives no chips to train"),
        (SECTIONS.format("results: -rf"), "results is -rf: it must not begin with -"),
        ("label: {source: l.gpkg, classes: [--help, b]}", "label.classes is --help: it must not begin with -"),
    ],
    ids=["deep", "aliases", "loop", "tag", "infinite", "width", "fractions", "results", "option"],
)
def test_a_config_that_means_harm_or_nothing_is_refused_in_a_sentence(
    text: str, message: str, folder: Path, run: Run
) -> None:
    (folder / "config.yaml").write_text(text)
    run("check", "config.yaml").ends(2, message)


def fetch_of(catalog: Catalog, run: Run, name: str) -> Completed:
    source = catalog.write()
    assert run(*search(source.parent), "--catalog", source).code == 0
    scene = f"results/items/{name}.geojson"
    return run("fetch", "--item", scene, "--catalog", source, "--scene", "results/scene", "--deadline", "20")


POINT = {"type": "Point", "coordinates": [15, 46]}
SECRET = {"type": "Feature", "properties": {"class": "SECRET"}, "geometry": POINT}
PRIVATE = {"type": "FeatureCollection", "features": [SECRET]}
# What may be before the words by which GDAL knows a virtual dataset.
HEADS = ["", "\ufeff", "x", " ", '{"type": "FeatureCollection", "features": [], "a": "', "fgb\x03fgb"]


def virtual_dataset(source: str) -> str:
    """A dataset of GDAL that reads another one, which may be an address."""
    layer = f'<OGRVRTLayer name="private"><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>'
    return f"<OGRVRTDataSource>{layer}</OGRVRTDataSource>"


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".gpkg", ".shp", ".fgb"])
@pytest.mark.parametrize("head", HEADS)
def test_a_vector_file_is_read_as_the_format_of_its_suffix_alone(
    suffix: str, head: str, folder: Path, web: Loopback, tmp_path: Path
) -> None:
    (tmp_path / "private.geojson").write_text(json.dumps(PRIVATE))
    end = '"}' if head.startswith("{") else ""
    for source in (str(tmp_path / "private.geojson"), f"/vsicurl/{web.url}/private.geojson"):
        (folder / f"labels{suffix}").write_text(head + virtual_dataset(source).replace('"', "'") + end)
        with suppress(BadInputError, RefusedError):
            assert "SECRET" not in read_file(folder / f"labels{suffix}", "class", None, "label.layer").values
    assert not web.received


@pytest.mark.parametrize("command", ["gdal vector pipeline ! read PRIVATE", "gdal vector convert PRIVATE"])
def test_a_pipeline_of_gdal_in_geojson_reads_no_other_file(command: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "private.geojson").write_text(json.dumps(PRIVATE))
    line = command.replace("PRIVATE", str(tmp_path / "private.geojson"))
    pipeline = {"type": "gdal_streamed_alg", "command_line": line}
    text = json.dumps(pipeline | {"relative_paths_relative_to_this_file": False})
    for content in (text, text[:-1] + ', "type": "FeatureCollection", "features": []}'):
        (folder / "labels.geojson").write_text(content)
        with pytest.raises(BadInputError):
            read_file(folder / "labels.geojson", "class", None, "label.layer")


def test_text_in_labels_stays_as_it_is(folder: Path) -> None:
    rows = [{"type": "Feature", "properties": {"class": name}, "geometry": POINT} for name in ("a < b", "Ü", "\\u003c")]
    (folder / "labels.geojson").write_text("\ufeff" + json.dumps({"type": "FeatureCollection", "features": rows}))
    assert read_file(folder / "labels.geojson", "class", None, "label.layer").values == ["a < b", "Ü", "\\u003c"]


def test_the_parts_of_a_shapefile_are_in_its_folder(folder: Path, tmp_path: Path) -> None:
    shape, columns = np.array([shapely.to_wkb(shapely.Point(15, 46))], object), [np.array(["SECRET"])]
    pyogrio.raw.write(tmp_path / "p.shp", shape, columns, ["class"], crs="EPSG:4326", geometry_type="Point")
    for path in tmp_path.glob("p.*"):
        (folder / path.name).symlink_to(path) if path.suffix == ".dbf" else shutil.copy(path, folder / path.name)
    with pytest.raises(RefusedError, match=r"p\.dbf is a link out of the folder of p\.shp"):
        read_file(folder / "p.shp", "class", None, "label.layer")


@pytest.mark.parametrize("name", ["labels.gpkg", "labels.csv", "labels.geojson", "labels.parquet"])
def test_a_pipe_in_the_place_of_labels_is_not_waited_for(name: str, folder: Path) -> None:
    os.mkfifo(folder / name)
    with pytest.raises(BadInputError, match="is not a file"):
        read_file(folder / name, "class", None, "label.layer")


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_a_pipe_or_a_device_in_the_place_of_a_document_is_not_waited_for(target: str, folder: Path, run: Run) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "input.json").symlink_to(target)
    stores = ("--model", folder, "--tiles", folder)
    inputs = {
        "predict": (*stores, "--chips", "input.json", "--places", "val", "--classes", "c.tif"),
        "fetch": ("--item", "input.json", "--scene", "scene"),
        "cwl": ("images", "--tiles", "@input.json"),
        "compare": ("one", "two"),
        "check": ("input.json",),
    }
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "metrics.json").symlink_to("../input.json")
        (folder / name / "metrics.json.run.json").symlink_to("../input.json")
    with pytest.raises(BadInputError, match="is a pipe or a device"):
        sha256(folder / "input.json")
    for command, words in inputs.items():
        more = ("--probabilities", "p.tif") if command == "predict" else ()
        completed = run(command, *words, *more)
        assert completed.code in (2, 3), command
        assert completed.stderr.startswith("error: "), completed.stderr


def write_parquet(path: Path, classes: list[str], shapes: list[bytes], **options: Any) -> None:
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    table = pa.table({"class": classes, "geometry": shapes})
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path, **options)


# GDAL warns of what it reads in another way.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".gpkg", ".fgb", ".geojson", ".shp", ".parquet"])
def test_a_damaged_vector_file_is_read_or_refused(suffix: str, folder: Path) -> None:
    shapes = np.array([shapely.to_wkb(shapely.box(n, 45, n + 1, 46)) for n in range(20)], object)
    dice = random.Random(5)
    if suffix == ".parquet":
        write_parquet(folder / "a.parquet", ["a", "b"] * 10, list(shapes))
    else:
        columns = {"fields": ["class"], "field_data": [np.array(["a", "b"] * 10)]}
        pyogrio.raw.write(folder / f"a{suffix}", shapes, **columns, crs="EPSG:4326", geometry_type="Polygon")
    content, refused = (folder / f"a{suffix}").read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(dice.choice((1, 3, 20))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (folder / f"a{suffix}").write_bytes(damaged[: dice.randrange(1, len(damaged)) if dice.random() < 0.2 else None])
        try:
            read_features(folder / f"a{suffix}", "class")
        except EopipeError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("codec", ["numcodecs.pickle", "numcodecs.json2", "pickle"])
def test_a_store_names_no_codec_that_runs_code(codec: str, tiles: Path) -> None:
    change_json(tiles / "valid/zarr.json", lambda item: item.update(codecs=[{"name": codec, "configuration": {}}]))
    with pytest.raises(EopipeError):
        Tiles(tiles).valid()


def test_labels_that_do_not_fit_into_memory_are_refused_before_they_are_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, most in (
        (text_files, "MAX_TEXT", 1000),
        (vector_files, "MAX_DECODED", 1000),
        (vector_files, "MAX_FEATURES", 50),
    ):
        monkeypatch.setattr(module, name, most)
    shapes, columns = np.array([shapely.to_wkb(shapely.Point(15, 46))] * 100, object), [np.array(["a"] * 100)]
    for name in ("l.gpkg", "l.geojson"):
        pyogrio.raw.write(folder / name, shapes, columns, ["class"], crs="EPSG:4326", geometry_type="Point")
    (folder / "l.csv").write_text("lon,lat,class\n" + "15,46,a\n" * 200)
    write_parquet(folder / "l.parquet", ["a"] * 1000, [b""] * 1000, compression="zstd")
    for name in ("l.gpkg", "l.geojson", "l.csv", "l.parquet"):
        with pytest.raises(RefusedError):
            read_file(folder / name, "class", None, "label.layer")


def test_a_map_is_opened_as_geotiff_whatever_it_says(folder: Path, web: Loopback) -> None:
    band = f"<SimpleSource><SourceFilename>/vsicurl/{web.url}/x.tif</SourceFilename></SimpleSource>"
    bands = f'<VRTRasterBand dataType="Byte" band="1">{band}</VRTRasterBand>'
    for head in ("", " ", "II*\0"):
        (folder / "classes.tif").write_text(f'{head}<VRTDataset rasterXSize="9" rasterYSize="9">{bands}</VRTDataset>')
        with pytest.raises((RefusedError, BadInputError)), open_map(folder / "classes.tif"):
            pass
    assert not web.received


def test_the_overviews_of_a_map_are_its_own(folder: Path, web: Loopback) -> None:
    profile = {"driver": "GTiff", "width": 64, "height": 64, "count": 1, "dtype": "uint8"}
    with rasterio.open(folder / "m.tif", "w", **profile, crs="EPSG:32633", transform=from_origin(0, 0, 10, 10)) as file:
        file.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=f"/vsicurl/{web.url}/x.ovr")
        file.write(np.ones((1, 64, 64), np.uint8))
    entry = f'<Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">/vsicurl/{web.url}/x.ovr</MDI></Metadata>'
    (folder / "m.tif.aux.xml").write_text(f"<PAMDataset>{entry}</PAMDataset>")
    with open_map(folder / "m.tif") as file:
        assert file.read(1, out_shape=(8, 8)).all()
        assert file.overviews(1) == []
    assert not web.received


@pytest.mark.parametrize("root", ["VRTDataset rasterXSize='1'", "OGRVRTDataSource", "GDAL_WMS", "GDAL_WCS"])
def test_xml_of_gdal_has_the_same_exit_code_in_fetch_and_preprocess(
    root: str, folder: Path, catalog: Catalog, run: Run
) -> None:
    item = catalog.add("A")
    assert fetch_of(catalog, run, "A").code == 0
    file = next(catalog.root.rglob("red.tif"))
    file.write_text(f"<?xml version='1.0'?>\n<{root}/>")
    for key in ("file:size", "file:checksum"):
        item["assets"]["red"].pop(key, None)
    shutil.rmtree(folder / "results")
    fetch_of(catalog, run, "A").ends(8, "is XML of GDAL")


def test_a_block_that_does_not_fit_into_memory_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    from eopipe.scenes.item import SceneBand
    from eopipe.warp.open_raster import open_raster

    path = tmp_path / "block.tif"
    size = {"height": 30_000, "width": 30_000, "blockxsize": 29_984, "blockysize": 29_984}
    profile = size | {"driver": "GTiff", "count": 1, "dtype": "uint16", "tiled": True, "SPARSE_OK": True}
    with rasterio.open(
        path, "w", crs="EPSG:32633", transform=from_origin(500_000, 5_100_000, 10, 10), BIGTIFF="YES", **profile
    ):
        pass
    assert path.stat().st_size < 10_000
    with pytest.raises(RefusedError, match="blocks of 29984 x 29984 pixels, which do not fit into memory"):
        open_raster(SceneBand("red", path, 1.0, 0.0, None), "red")


def test_scenes_whose_names_differ_only_by_case_are_refused(catalog: Catalog, run: Run) -> None:
    catalog.add("Scene")
    catalog.add("scene")
    run(*search(catalog.write().parent)).ends(3, "differ only by upper and lower case")


IDS = [
    "../../../evil",
    "a/b",
    "x;touch marker",
    "$(touch marker)",
    "--help",
    "-rf",
    "..",
    ".",
    "ü" * 200,
    "x" * 400,
    ".hidden",
    "a b",
    "{x}",
    "a\nb",
]


@pytest.mark.parametrize("name", [*IDS, "\x1b[2J\x1b[31mred", "\u202ered"])
def test_an_id_is_no_path_no_command_and_reaches_no_terminal_raw(
    name: str, folder: Path, tmp_path: Path, catalog: Catalog, run: Run
) -> None:
    before = set(tmp_path.iterdir())
    catalog.add(name)
    catalog.items[0]["assets"]["red"]["href"] = "missing.tif"
    source = catalog.write()
    assert run(*search(source.parent)).code == 0
    files = sorted(path.name for path in (folder / "results/items").iterdir())
    assert len(files) == 2, "the item and the manifest"
    assert name in [json.loads((folder / "results/items" / file).read_text()).get("id") for file in files]
    stem = next(file for file in files if file.endswith(".geojson"))
    completed = run("fetch", f"--item=results/items/{stem}", "--catalog", source, "--scene", "results/scene").ends(3)
    assert all(letter.isprintable() for letter in completed.stderr.replace("\n", "")), completed.stderr
    assert {path.name for path in folder.iterdir()} == {"results"}
    assert set(tmp_path.iterdir()) - before <= {catalog.root}


def test_messages_and_logs_show_control_characters_as_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    from eopipe.telemetry.progress import LineFormatter
    from eopipe.text_table import printable_output

    with printable_output(sys.stdout, sys.stderr):
        print("a\x1b[2J\tb\r\x9bc\u202e")
        print("d\x07", file=sys.stderr)
    captured = capsys.readouterr()
    assert captured.out == "a\\x1b[2J\tb\\r\\x9bc\\u202e\n"
    assert captured.err == "d\\x07\n"
    record = logging.LogRecord("eopipe", logging.INFO, "", 0, "event=x scene=%s", ("\x1b[2J",), None)
    assert LineFormatter().format(record).endswith("scene=\\x1b[2J")


def test_deep_json_of_a_catalog_is_refused_in_a_sentence(web: Loopback, tmp_path: Path, run: Run) -> None:
    deep = '{"a":' * 200_000 + "1" + "}" * 200_000
    (tmp_path / "catalog.json").write_text(deep)
    outputs = ("--items", "i", "--grid", "g", "--selection", "s")
    completed = run("search", "--catalog", tmp_path, *outputs)
    assert (completed.code, "bug" in completed.stderr) == (3, False), completed.stderr
    run("search", "--url", f"{web.url}/catalog.json", "--deadline", "5", *outputs).ends(3, "nested too deeply")


def test_the_status_of_a_newer_version_is_read_and_another_file_is_none(folder: Path) -> None:
    path = folder / "status.json"
    path.write_text('{"kind": "lost", "code": 75, "reason": "x", "colour": "red"}')
    failure = read_failure(path)
    assert failure
    assert failure.code == 75
    for text in ('{"kind": "lost"}', "[]", "3"):
        path.write_text(text)
        assert read_failure(path) is None


def test_text_of_others_is_no_markup_in_the_readme_of_a_crate() -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(2)) `code`\n# heading"
    description = CrateDescription(title=evil, description=evil, license=evil, author=evil, funding=(evil,))
    text = readme(description, (), (), ())
    assert "<script" not in text.replace("\\<script", "")
    assert "[x](" not in text.replace("\\[x\\](", "")
    assert "\n# heading" not in text


FORGED = "a\nerror: nothing was found\r\nwarning: x\u2028error: y"


def test_line_ends_in_an_id_begin_no_message(run: Run, tmp_path: Path) -> None:
    item = item_of({"red": {"href": "missing.tif"}}) | {"id": FORGED}
    (tmp_path / "item.geojson").write_text(json.dumps(item))
    completed = run(
        "fetch", "--item", tmp_path / "item.geojson", "--scene", tmp_path / "scene", "--catalog", tmp_path
    ).ends(3)
    lines = [line for line in completed.stderr.splitlines() if line.startswith(("error:", "warning:"))]
    assert len(lines) == 1, completed.stderr
    assert r"a\nerror: nothing was found\r\nwarning: x\u2028error: y" in lines[0]


def test_line_ends_in_a_file_name_begin_no_message(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "results" / "a\nerror: nothing was found"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"files": [{"path": "b", "bytes": 1, "sha256": "0"}]}')
    completed = run("verify", tmp_path / "results").ends(4)
    lines = [line for line in completed.stderr.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, completed.stderr


def test_lists_in_messages_keep_their_lines() -> None:
    from eopipe.text_table import message_line

    assert message_line("error", "2 mistakes\n  one\n  two\n") == "error: 2 mistakes\n  one\n  two"
