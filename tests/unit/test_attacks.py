"""Models, records and folders from somebody else run no code and write nothing outside of their folder.

Each attack would leave the file `marker`; the rows of SECURITY.md name the tests here that hold them.
"""

import hashlib
import json
import logging
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
from builders import write_features, write_model
from loopback import Loopback
from pyarrow import parquet
from rasterio.transform import from_origin
from remote_assets import item_of
from safetensors.torch import save_file
from scenery import Catalog, Completed, Fetch, Run, Search
from stores import make_scene

import eopipe
from eopipe import text_files
from eopipe.contract import stage, to_args
from eopipe.errors import BadInputError, EopipeError, IntegrityError, RefusedError
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
from eopipe.scenes.item import SceneBand
from eopipe.telemetry.progress import LineFormatter
from eopipe.text_table import message_line, printable_output
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.store import Tiles
from eopipe.warp.open_raster import open_raster

BANDS, CLASSES, WEIGHTS = ("red", "nir"), ("x", "y", "z"), "model.safetensors"
MAPS = ("--classes", "c.tif", "--probabilities", "p.tif")
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
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    yield work
    assert not (work / "marker").exists()


@pytest.fixture
def tiles(folder: Path) -> Path:
    return make_scene(folder, "a", BANDS)[0]


@pytest.fixture
def predict(run: Run, tiles: Path) -> Run:
    """Map the tiles by a model."""
    return lambda model, *options: run("predict", "--model", model, "--tiles", tiles, *MAPS, *options)


@pytest.fixture
def search(run: Run, folder: Path, catalog: Catalog) -> Callable[[], Completed]:
    """Search the scenes of the catalog into `results`."""
    return lambda: Search(run, Path("results"), ("--assets", "red"))(catalog.write())


@pytest.fixture
def searched(catalog: Catalog, search: Callable[[], Completed]) -> Path:
    """A catalog of scene A, which was searched into `results`."""
    catalog.add("A")
    search().ends(0)
    return catalog.root


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def given_model(folder: Path, change: Callable[[dict[str, Any]], None] = lambda item: None) -> Path:
    """A model folder of somebody else, with consistent digests, whose `model.json` was changed."""
    write_model(folder, "segmentation", CLASSES, bands=BANDS, mean=0.0, std=1.0, chip=16)
    change_json(folder / "model.json", change)
    return sealed(folder)


def sealed(model: Path) -> Path:
    """A model whose item and manifest state the digest of its weights."""
    checksum = {"file:checksum": f"1220{sha256(model / WEIGHTS)}"}
    change_json(model / "model.json", lambda item: item["assets"]["model"].update(checksum))
    (model / "manifest.json").unlink(missing_ok=True)
    write_manifest(model)
    return model


def module(item: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = item["properties"]["mlm:hyperparameters"]["model"]
    return settings


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
    words: tuple[str, ...], folder: Path, tiles: Path, run: Run, predict: Run
) -> None:
    model = given_model(folder / "model", names(*words))
    export = run("export", "--model", model, "--tiles", tiles, "--onnx", "m.onnx", "--check", "m.json")
    for completed in (export, predict(model), predict(model / "model.json")):
        completed.ends(8, f"names code to run, {words[0]}", f"--allow-code {words[0]}")


@pytest.mark.parametrize("words", CODE_NAMES[:4], ids=lambda words: words[0])
def test_what_is_not_a_module_of_torch_is_not_called_even_if_it_is_allowed(
    words: tuple[str, ...], folder: Path, predict: Run
) -> None:
    model = given_model(folder / "model", names(*words))
    predict(model, "--allow-code", words[0]).ends(2, f"model {words[0]} is not a torch.nn.Module")


def model_with_code(folder: Path, name: str = "net") -> Path:
    """A given model with code of its own, whose digests are right."""
    file = f"{name}.py"
    model = given_model(folder, names(f"{name}:Net"))
    digests = {f"code/{file}": hashlib.sha256(NET.encode()).hexdigest()}
    change_json(model / "model.json", lambda item: module(item).update(files=digests))
    (model / "code").mkdir()
    (model / "code" / file).write_text(NET)
    save_file({f"model.{key}": value for key, value in torch.nn.Conv2d(2, 3, 1).state_dict().items()}, model / WEIGHTS)
    return sealed(model)


def test_the_code_of_a_model_folder_runs_only_if_its_class_is_allowed_by_name(folder: Path, predict: Run) -> None:
    model = model_with_code(folder / "model")
    for options in ((), ("--allow-code", "net:Other"), ("--allow-code", "unet")):
        predict(model, *options).ends(8, "--allow-code net:Net")
        assert not (folder / "marker").exists()
    predict(model, "--allow-code", "net:Net").ends(0)
    # Else the test itself would not notice code that runs.
    (folder / "marker").unlink()
    assert predict(model, "--allow-code", "net.py:Net").code == 0, "it is the same class"


def test_in_python_the_permission_is_an_argument_and_the_error_names_it(folder: Path) -> None:
    model = model_with_code(folder / "model")
    loaded, image = eopipe.load_model(model), np.zeros((2, 16, 16), np.float32)
    with pytest.raises(RefusedError, match=r"if you trust it and its arguments add allow_code='net:Net'$"):
        loaded.predict(image)
    assert not (folder / "marker").exists()
    assert eopipe.load_model(model, allow_code="net.py:Net").predict(image).shape == (3, 16, 16)
    (folder / "marker").unlink()


@pytest.mark.parametrize("name", ["torch", "json"])
def test_code_that_has_the_name_of_a_library_does_not_run_in_its_place(name: str, folder: Path, predict: Run) -> None:
    model = model_with_code(folder / "model", name)
    predict(model, "--allow-code", f"{name}:Net").ends(8, "has the name of an installed library")


class Bomb:
    """Unpickled, it leaves the marker."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch marker",)


def test_a_pickle_in_the_place_of_weights_is_not_read(folder: Path, predict: Run) -> None:
    model = given_model(folder / "model")
    (model / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    predict(sealed(model)).ends(3)


@pytest.mark.parametrize("href", ["../secret.safetensors", "/etc/passwd", "file:///etc/passwd", "..\\secret", "-rf"])
def test_weights_outside_of_the_model_are_not_read(href: str, folder: Path, predict: Run) -> None:
    (folder / "secret.safetensors").write_bytes(b"secret")
    completed = predict(given_model(folder / "model", lambda item: item["assets"]["model"].update(href=href)))
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
    change: Callable[[dict[str, Any]], None], message: str, folder: Path, predict: Run
) -> None:
    predict(given_model(folder / "model", change)).ends(3, message)


def test_weights_to_start_from_run_no_code_of_their_model(folder: Path) -> None:
    model = model_with_code(folder / "model")
    architecture = Architecture("torch.nn:Conv2d", 2, 3, 4, 1, (), ("kernel_size=1", "out_channels=3"))
    architecture.build().load_state_dict(read_weights(model))


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


@pytest.mark.parametrize("way", ["absolute", "parent", "link", "repeated", "selection"])
def test_a_repair_writes_nothing_outside_of_the_folder_that_was_surveyed(
    way: str, folder: Path, catalog: Catalog, run: Run
) -> None:
    catalog.add("A")
    victim, results = folder / "home" / "victim", folder / "results"
    victim.parent.mkdir()
    victim.write_text("mine")
    results.mkdir()
    (results / "link").symlink_to(victim.parent)
    grid = {"parent": "results/../home/victim", "link": "results/link/victim"}.get(way, str(victim))
    words = ["search", "--catalog", str(catalog.write()), "--assets", "red", "--items", "results/items"]
    words += ["--selection", str(victim) if way == "selection" else "results/s.json", "--grid"]
    words += ["results/grid.json"] if way in ("selection", "repeated") else [grid]
    words += ["--grid", str(victim)] if way == "repeated" else []
    record(results / "items.run.json", words, items="items")
    run("verify", "results", "--repair").ends(8, "outside of")
    assert victim.read_text() == "mine"
    assert not (results / "items").exists()


def test_a_repair_ignores_the_folders_of_knobs_in_a_record(folder: Path, searched: Path, run: Run) -> None:
    words = ["fetch", "--item", "results/items/A.geojson", "--catalog", str(searched), "--scene", "results/A"]
    record(folder / "results/A.run.json", [*words, "--parts", str(folder / "elsewhere")], scene="A")
    # The scene is missing, so that it is fetched again.
    run("verify", "results", "--repair")
    assert (folder / "results/A/manifest.json").is_file()
    assert not (folder / "elsewhere").exists()


@pytest.mark.usefixtures("searched")
def test_a_repair_moves_nothing_through_a_link(folder: Path, run: Run) -> None:
    (folder / "home").mkdir()
    (folder / "results/items/autostart").write_text("evil")
    (folder / "results/items.extra").symlink_to(folder / "home")
    run("verify", "results", "--repair").ends(8)
    assert not list((folder / "home").iterdir())


@pytest.mark.exhaustive
def test_a_repair_runs_the_code_of_a_custom_model_only_if_it_is_allowed(folder: Path, tiles: Path, run: Run) -> None:
    results = folder / "results"
    results.mkdir()
    model_with_code(results / "model")
    words = ["predict", "--model", "results/model", "--tiles", str(tiles), "--classes", "results/c.tif"]
    words += ["--probabilities", "results/p.tif", "--allow-code", "net:Net"]
    record(results / "c.tif.run.json", words, classes="c.tif", probabilities="p.tif")
    assert run("verify", "results", "--repair").code != 0
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
    (bbox,) = (port for port in stage("search").ports if port.name == "bbox")
    assert to_args(bbox, (-1.5, 2.0)) == ["--bbox", "-1.5", "2.0"]


# Folders


@pytest.mark.usefixtures("searched")
def test_modules_of_a_folder_are_not_imported_by_a_repair(folder: Path, run: Run) -> None:
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
        *(("core.repositoryFormatVersion", "1"), ("extensions.partialClone", "origin")),
        *(("remote.origin.promisor", "true"), ("remote.origin.url", "ext::sh -c 'touch marker'")),
        ("protocol.ext.allow", "always"),
    ],
}


@pytest.mark.parametrize("attack", GIT_ATTACKS)
def test_the_git_settings_of_a_folder_start_no_program(attack: str, folder: Path) -> None:
    def git(words: Sequence[str]) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)

    (folder / "a").write_text("a")
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "post-index-change").write_text("#!/bin/sh\ntouch marker\n")
    (folder / "post-index-change").chmod(0o755)
    for words in ("init --quiet", "add .", "commit --quiet --message x"):
        git(words.split())
    (folder / "more").write_text('[filter "evil"]\n\tclean = touch marker; cat\n')
    for setting in GIT_ATTACKS[attack]:
        git(("config", *setting))
    if attack == "remote":
        for path in (folder / ".git/objects").glob("??/*"):
            path.unlink()
    # Another size and time, so that git reads it again.
    (folder / "a").write_text("b")
    os.utime(folder / "a", (1, 1))
    assert commit(folder).endswith("+") or attack == "remote"


# Catalogs, configs and files


ALIASES = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9) if n else 'x'}]\n" for n in range(12))
SECTIONS = "search: {catalog: c, assets: [red]}\nlabel: {source: l.gpkg, classes: [a, b]}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 20_000, "is nested too deeply"),
        (ALIASES, "aliases that expand to more than"),
        ("a: &a [*a]\n", "aliases that expand to more than"),
        ("results: !!python/object/apply:os.system ['touch marker']\n", "is not valid YAML"),
        (SECTIONS + "train: {learning_rate: .inf}\n", "train.learning_rate is inf"),
        (SECTIONS + "train: {width: 10000000}\n", "train.width is 10000000: write at most 4096"),
        (SECTIONS + "split: {fractions: [0, 0, 0]}\n", "split.fractions gives no chips to train"),
        (SECTIONS + "results: -rf\n", "results is -rf"),
        ("label: {source: l.gpkg, classes: [--help, b]}", "label.classes is --help"),
    ],
    ids=["deep", "aliases", "loop", "tag", "infinite", "width", "fractions", "results", "option"],
)
def test_a_config_that_means_harm_or_nothing_is_refused_in_a_sentence(text: str, message: str, run: Run) -> None:
    Path("config.yaml").write_text(text)
    run("check", "config.yaml").ends(2, message)


POINT = shapely.Point(15, 46)
# What may be before the words by which GDAL knows a virtual dataset.
HEADS = ["", "\ufeff", "x", " ", '{"type": "FeatureCollection", "features": [], "a": "', "fgb\x03fgb"]


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """Labels of somebody else."""
    return write_features(tmp_path / "private.geojson", (POINT, {"class": "SECRET"}))


def labels_in(path: Path) -> list[object]:
    """The classes of labels."""
    return read_file(path, "class", None, "label.layer").values


@pytest.mark.parametrize("suffix", [".geojson", ".json", ".gpkg", ".shp", ".fgb"])
@pytest.mark.parametrize("head", HEADS)
def test_a_vector_file_is_read_as_the_format_of_its_suffix_alone(
    suffix: str, head: str, folder: Path, web: Loopback, private: Path
) -> None:
    end = '"}' if head.startswith("{") else ""
    for source in (private, f"/vsicurl/{web.url}/private.geojson"):
        # A dataset of GDAL that reads another one, which may be an address.
        layer = f"<OGRVRTLayer name='private'><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>"
        (folder / f"labels{suffix}").write_text(f"{head}<OGRVRTDataSource>{layer}</OGRVRTDataSource>{end}")
        with suppress(BadInputError, RefusedError):
            assert "SECRET" not in labels_in(folder / f"labels{suffix}")
    assert not web.received


@pytest.mark.parametrize("command", ["gdal vector pipeline ! read PRIVATE", "gdal vector convert PRIVATE"])
def test_a_pipeline_of_gdal_in_geojson_reads_no_other_file(command: str, folder: Path, private: Path) -> None:
    pipeline = {"type": "gdal_streamed_alg", "command_line": command.replace("PRIVATE", str(private))}
    text = json.dumps(pipeline | {"relative_paths_relative_to_this_file": False})
    for content in (text, text[:-1] + ', "type": "FeatureCollection", "features": []}'):
        (folder / "labels.geojson").write_text(content)
        with pytest.raises(BadInputError):
            labels_in(folder / "labels.geojson")


def test_text_in_labels_stays_as_it_is(folder: Path) -> None:
    names = ["a < b", "Ü", "\\u003c"]
    path = write_features(folder / "labels.geojson", *((POINT, {"class": name}) for name in names))
    path.write_text("\ufeff" + path.read_text())
    assert labels_in(path) == names


def write_vector(path: Path, classes: list[str], shapes: Sequence[Any] = (), **options: Any) -> None:
    """Labels of these classes, in points if no other shapes are given, in the format of the suffix."""
    wkb = [shapely.to_wkb(shape) for shape in shapes or [POINT] * len(classes)]
    if path.suffix == ".parquet":
        geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
        table = pa.table({"class": classes, "geometry": wkb})
        parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path, **options)
    else:
        columns = {"fields": ["class"], "field_data": [np.array(classes)], "crs": "EPSG:4326"}
        kind = "Polygon" if shapes else "Point"
        pyogrio.raw.write(path, np.array(wkb, object), **columns, geometry_type=kind)


def test_the_parts_of_a_shapefile_are_in_its_folder(folder: Path, tmp_path: Path) -> None:
    write_vector(tmp_path / "p.shp", ["SECRET"])
    for path in tmp_path.glob("p.*"):
        (folder / path.name).symlink_to(path) if path.suffix == ".dbf" else shutil.copy(path, folder / path.name)
    with pytest.raises(RefusedError, match=r"p\.dbf is a link out of the folder of p\.shp"):
        labels_in(folder / "p.shp")


@pytest.mark.parametrize("name", ["labels.gpkg", "labels.csv", "labels.geojson", "labels.parquet"])
def test_a_pipe_in_the_place_of_labels_is_not_waited_for(name: str) -> None:
    os.mkfifo(name)
    with pytest.raises(BadInputError, match="is not a file"):
        labels_in(Path(name))


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_a_pipe_or_a_device_in_the_place_of_a_document_is_not_waited_for(target: str, folder: Path, run: Run) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "input.json").symlink_to(target)
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "metrics.json").symlink_to("../input.json")
        (folder / name / "metrics.json.run.json").symlink_to("../input.json")
    with pytest.raises(BadInputError, match="is a pipe or a device"):
        sha256(folder / "input.json")
    for words in (
        ("predict", "--model", folder, "--tiles", folder, "--chips", "input.json", "--places", "val", *MAPS),
        ("fetch", "--item", "input.json", "--scene", "scene"),
        ("cwl", "images", "--tiles", "@input.json"),
        ("compare", "one", "two"),
        ("check", "input.json"),
    ):
        completed = run(*words)
        assert completed.code in (2, 3), words
        assert completed.stderr.startswith("error: "), completed.stderr


# GDAL warns of what it reads in another way.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", [".gpkg", ".fgb", ".geojson", ".shp", ".parquet"])
def test_a_damaged_vector_file_is_read_or_refused(suffix: str, folder: Path) -> None:
    path, dice, refused = folder / f"a{suffix}", random.Random(5), 0
    write_vector(path, ["a", "b"] * 10, [shapely.box(n, 45, n + 1, 46) for n in range(20)])
    content = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(dice.choice((1, 3, 20))):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(damaged[: dice.randrange(1, len(damaged)) if dice.random() < 0.2 else None])
        try:
            read_features(path, "class")
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
    monkeypatch.setattr(text_files, "MAX_TEXT", 1000)
    monkeypatch.setattr(vector_files, "MAX_DECODED", 1000)
    monkeypatch.setattr(vector_files, "MAX_FEATURES", 50)
    (folder / "l.csv").write_text("lon,lat,class\n" + "15,46,a\n" * 200)
    write_vector(folder / "l.parquet", ["a"] * 1000, compression="zstd")
    for name in ("l.gpkg", "l.geojson", "l.csv", "l.parquet"):
        if not (folder / name).exists():
            write_vector(folder / name, ["a"] * 100)
        with pytest.raises(RefusedError):
            labels_in(folder / name)


def test_a_map_is_opened_as_geotiff_whatever_it_says(folder: Path, web: Loopback) -> None:
    source = f"<SimpleSource><SourceFilename>/vsicurl/{web.url}/x.tif</SourceFilename></SimpleSource>"
    bands = f'<VRTRasterBand dataType="Byte" band="1">{source}</VRTRasterBand>'
    for head in ("", " ", "II*\0"):
        (folder / "classes.tif").write_text(f'{head}<VRTDataset rasterXSize="9" rasterYSize="9">{bands}</VRTDataset>')
        with pytest.raises((RefusedError, BadInputError, IntegrityError)), open_map(folder / "classes.tif"):
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
def test_xml_of_gdal_is_refused_by_fetch(
    root: str, catalog: Catalog, run: Run, search: Callable[[], Completed]
) -> None:
    item = catalog.add("A")
    catalog.write()
    next(catalog.root.rglob("red.tif")).write_text(f"<?xml version='1.0'?>\n<{root}/>")
    for key in ("file:size", "file:checksum"):
        del item["assets"]["red"][key]
    search().ends(0)
    words = ("--item", "results/items/A.geojson", "--catalog", catalog.root, "--scene", "results/scene")
    run("fetch", *words, "--deadline", "20").ends(8, "is XML of GDAL")


def test_a_block_that_does_not_fit_into_memory_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "block.tif"
    size = {"height": 30_000, "width": 30_000, "blockxsize": 29_984, "blockysize": 29_984}
    profile = size | {"driver": "GTiff", "count": 1, "dtype": "uint16", "tiled": True, "SPARSE_OK": True}
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_100_000, 10, 10)}
    rasterio.open(path, "w", BIGTIFF="YES", **place, **profile).close()
    assert path.stat().st_size < 10_000
    with pytest.raises(RefusedError, match="blocks of 29984 x 29984 pixels, which do not fit into memory"):
        open_raster(SceneBand("red", path, 1.0, 0.0, None), "red")


def test_scenes_whose_names_differ_only_by_case_are_refused(catalog: Catalog, search: Callable[[], Completed]) -> None:
    catalog.add("Scene")
    catalog.add("scene")
    search().ends(3, "differ only by upper and lower case")


IDS = [
    "../../../evil", "a/b", "x;touch marker", "$(touch marker)", "--help", "-rf", "..", ".", ".hidden", "a b", "{x}",
    "a\nb", "ü" * 200, "x" * 400, "\x1b[2J\x1b[31mred", "\u202ered",
]  # fmt: skip


@pytest.mark.parametrize("name", IDS)
def test_an_id_is_no_path_no_command_and_reaches_no_terminal_raw(
    name: str, folder: Path, tmp_path: Path, catalog: Catalog, run: Run, search: Callable[[], Completed]
) -> None:
    before = set(tmp_path.iterdir())
    catalog.add(name)["assets"]["red"]["href"] = "missing.tif"
    search().ends(0)
    assert len(list((folder / "results/items").iterdir())) == 2, "the item and the manifest"
    (file,) = (folder / "results/items").glob("*.geojson")
    assert json.loads(file.read_text())["id"] == name
    words = (f"--item=results/items/{file.name}", "--catalog", catalog.root, "--scene", "results/scene")
    completed = run("fetch", *words).ends(3)
    assert all(letter.isprintable() for letter in completed.stderr.replace("\n", "")), completed.stderr
    assert {path.name for path in folder.iterdir()} == {"results"}
    assert set(tmp_path.iterdir()) - before <= {catalog.root}


def test_messages_and_logs_show_control_characters_as_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with printable_output(sys.stdout, sys.stderr):
        print("a\x1b[2J\tb\r\x9bc\u202e")
        print("d\x07", file=sys.stderr)
    assert capsys.readouterr() == ("a\\x1b[2J\tb\\r\\x9bc\\u202e\n", "d\\x07\n")
    record = logging.LogRecord("eopipe", logging.INFO, "", 0, "event=x scene=%s", ("\x1b[2J",), None)
    assert LineFormatter().format(record).endswith("scene=\\x1b[2J")


def test_deep_json_of_a_catalog_is_refused_in_a_sentence(web: Loopback, tmp_path: Path, run: Run) -> None:
    deep = '{"a":' * 200_000 + "1" + "}" * 200_000
    (tmp_path / "catalog.json").write_text(deep)
    outputs = ("--items", "i", "--grid", "g", "--selection", "s")
    assert "bug" not in run("search", "--catalog", tmp_path, *outputs).ends(3).stderr
    run("search", "--url", f"{web.url}/catalog.json", "--deadline", "5", *outputs).ends(3, "nested too deeply")


def test_the_status_of_a_newer_version_is_read_and_another_file_is_none(folder: Path) -> None:
    path = folder / "status.json"
    path.write_text('{"kind": "lost", "code": 75, "reason": "x", "colour": "red"}')
    assert read_failure(path).code == 75
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


def test_line_ends_in_an_id_or_a_file_name_begin_no_message_and_those_of_lists_stay(fetch: Fetch, run: Run) -> None:
    item = item_of({"red": {"href": "missing.tif"}}) | {"id": "a\nerror: found\r\nwarning: x\u2028error: y"}
    results = fetch.folder / "results"
    (results / "a\nerror: nothing was found").mkdir(parents=True)
    manifest = '{"files": [{"path": "b", "bytes": 1, "sha256": "0"}]}'
    (results / "a\nerror: nothing was found/manifest.json").write_text(manifest)
    of_id = fetch(item, "--catalog", fetch.folder).ends(3, r"a\nerror: found\r\nwarning: x\u2028error: y")
    for completed in (of_id, run("verify", results).ends(4)):
        lines = [line for line in completed.stderr.splitlines() if line.startswith(("error:", "warning:"))]
        assert len(lines) == 1, completed.stderr
    assert message_line("error", "2 mistakes\n  one\n  two\n") == "error: 2 mistakes\n  one\n  two"
