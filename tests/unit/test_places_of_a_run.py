"""`eopipe init --from` finds the catalog and the area of a run, wherever its project is now, and says what it takes."""

import getpass
import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scenery import Catalog, Completed, Run
from test_input_check import write_model

from eopipe.models.input_check import TileProperties
from eopipe.models.model_folder import model_id
from eopipe.text_files import read_json, write_json

SETTINGS = {"bands": ["vv", "vh"], "mask": "none", "decibel": True}
LABEL = {"source": "labels.gpkg", "classes": ["land", "water"]}
AREA = {"type": "Polygon", "coordinates": [[[14.9, 46.0], [15.1, 46.0], [15.1, 46.1], [14.9, 46.1], [14.9, 46.0]]]}


def write_catalog(folder: Path, *collections: str) -> Path:
    scenes = Catalog(folder)
    for number, name in enumerate(collections or ("sentinel",)):
        bands = {band: np.full((64, 48), 4, np.uint16) for band in SETTINGS["bands"]}
        scenes.add(f"scene{number}", bands, shape=(64, 48))["collection"] = name
    return scenes.write()


@dataclass
class Finished:
    """A run in `jo/work/project` that has ended, but for the files that `init` does not read."""

    top: Path
    run: Run
    log: pytest.LogCaptureFixture

    @property
    def project(self) -> Path:
        return self.top / "jo/work/project"

    def write(self, **search: Any) -> None:
        """Write config, model and records; the one of the search is written by the stage, from the project folder."""
        results = self.project / "results"
        write_model(results / "model", TileProperties(10.0, ("dB",), ("",)))
        write_json(self.project / "results/tiles/a.zarr.run.json", {"settings": SETTINGS, "arguments": []})
        search = {"assets": SETTINGS["bands"]} | search
        self.write_config(search=search)
        names = {"items": "items", "grid": "grid.json", "selection": "selection.json"}
        words = [word for port, name in names.items() for word in (f"--{port}", f"results/{name}")]
        for key, value in search.items():
            words += [f"--{key}", *([value] if isinstance(value, str) else value)]
        with chdir(self.project):
            assert self.run("search", *words).code == 0

    def write_config(self, name: str = "config.yaml", **changes: Any) -> None:
        (self.project / name).write_text(yaml.safe_dump({"preprocess": SETTINGS, "label": LABEL} | changes))

    def init(self, *arguments: object) -> Completed:
        """The next project, written from the folder above `jo`."""
        return self.run("init", "next", *arguments)

    @property
    def warnings(self) -> list[str]:
        return [record.getMessage() for record in self.log.records if record.levelname == "WARNING"]

    @property
    def search(self) -> dict[str, Any]:
        """The search of the next project."""
        search: dict[str, Any] = yaml.safe_load((self.top / "next/config.yaml").read_text())["search"]
        return search


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, caplog: pytest.LogCaptureFixture) -> Finished:
    monkeypatch.chdir(tmp_path)
    # A record hides the name of the user, and with it the folders of the path.
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    (tmp_path / "jo/work/project/results/tiles").mkdir(parents=True)
    return Finished(tmp_path, run, caplog)


PLACES = {
    "inside": ("jo/work/project/data", "data"),
    "beside": ("jo/work/data", "../data"),
    "outside": ("far/data", "../../../far/data"),
    "of the user": ("ada/far/data", "{top}/ada/far/data"),
    "absolute": ("far/data", "{top}/far/data"),
}
MOVES: dict[str, Callable[[Path, Path], object]] = {
    "moved": Path.rename,
    "copied": shutil.copytree,
    "linked": lambda old, new: new.symlink_to(old),
}
NAMED = (".", "results", "config.yaml", "results/", "results/../results")


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("place", PLACES)
def test_the_catalog_of_a_run_is_found_and_named_as_its_config_names_it(
    place: str, named: str, finished: Finished
) -> None:
    real, text = PLACES[place]
    write_catalog(finished.top / real)
    finished.write(catalog=text.format(top=finished.top))
    completed = finished.init("--from", f"jo/work/project/{named}")
    assert completed.code == 0, completed.stderr
    assert finished.warnings == []
    catalog = finished.search["catalog"]
    assert Path(catalog).is_absolute() == text.startswith("{top}")
    with chdir(finished.top / "next"):
        assert Path(catalog).samefile(finished.top / real)
    assert finished.run("check", "next").code == 0


@pytest.mark.parametrize("named", [".", "results"])
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("place", ["inside", "absolute", "of the user"])
def test_a_project_that_was_moved_maps_in_the_same_catalog(
    place: str, move: str, named: str, finished: Finished
) -> None:
    real, text = PLACES[place]
    write_catalog(finished.top / real)
    finished.write(catalog=text.format(top=finished.top))
    (finished.top / "a/b/c").mkdir(parents=True)
    MOVES[move](finished.project, finished.top / "a/b/c/old")
    completed = finished.init("--from", f"a/b/c/old/{named}")
    assert completed.code == 0, completed.stderr
    with chdir(finished.top / "next"):
        now = "a/b/c/old/data" if place == "inside" else real
        assert Path(finished.search["catalog"]).samefile(finished.top / now)


def test_a_run_whose_config_has_another_name_is_found_by_its_records(finished: Finished) -> None:
    write_catalog(finished.top / "jo/work/data")
    finished.write(catalog="../data")
    (finished.project / "config.yaml").rename(finished.project / "summer.yaml")
    for number, name in enumerate(("results", "summer.yaml")):
        completed = finished.run("init", f"next{number}", "--from", f"jo/work/project/{name}")
        assert completed.code == 0, completed.stderr
        config = yaml.safe_load((finished.top / f"next{number}/config.yaml").read_text())
        assert config["search"]["catalog"] == "../jo/work/data"


@pytest.mark.parametrize("now", ["other", "gone", None])
def test_a_catalog_that_the_config_names_since_the_run_is_not_taken(now: str | None, finished: Finished) -> None:
    for name in ("data", "other"):
        write_catalog(finished.project / name)
    finished.write(catalog="data")
    finished.write_config(search={"catalog": now} if now else {"url": "https://stac.example.org"})
    completed = finished.init("--from", "jo/work/project")
    assert completed.code == 0, completed.stderr
    assert finished.search["catalog"] == "../jo/work/project/data"
    place = "jo/work/project/data"
    sentence = f"search.catalog is {now} in the config, but {place} in the run; {place} is used"
    assert finished.warnings == [sentence]


def test_of_two_catalogs_of_one_name_the_one_of_the_config_is_taken_and_said(finished: Finished) -> None:
    for name in ("jo/work/data", "ada/far/data"):
        write_catalog(finished.top / name)
    finished.write(catalog="../data")
    finished.write_config(search={"catalog": "../../../ada/far/data"})
    completed = finished.init("--from", "jo/work/project")
    assert finished.search["catalog"] == "../ada/far/data"
    assert completed.code == 0
    assert finished.warnings == [
        "search.catalog is ../../../ada/far/data in the config, but jo/work/data in the run; ada/far/data is used"
    ]


@pytest.mark.parametrize(
    ("now", "by_config"),
    [
        ("../data", "at jo/work/data (by its config)"),
        ("../other", "at jo/work/other (by its config)"),
        (None, "in its config"),
    ],
)
def test_a_catalog_that_is_gone_is_one_sentence_with_both_places_and_the_cure(
    now: str | None, by_config: str, finished: Finished
) -> None:
    write_catalog(finished.top / "ada/far/data")
    write_catalog(finished.top / "jo/work/other")
    finished.write(catalog=f"{finished.top}/ada/far/data")
    finished.write_config(search={"catalog": now} if now else {})
    shutil.rmtree(finished.top / "ada/far")
    completed = finished.init("--from", "jo/work/project")
    assert completed.code == 2
    assert completed.stderr.count("\n") == 1, completed.stderr
    sentence = f"no catalog data of the run at jo/work/project/data (by its record), nor {by_config}; give --catalog or"
    assert sentence in completed.stderr
    assert not (finished.top / "next").exists()


@pytest.mark.parametrize("first", ["sentinel", ""])
def test_with_another_catalog_alone_all_else_is_as_in_the_run(first: str, finished: Finished) -> None:
    write_catalog(finished.project / "data")
    chosen = {"collections": ["sentinel"]} if first else {}
    finished.write(catalog="data", ids=["scene0"], datetime="2023-08", best="3", per="month", **chosen)
    shutil.rmtree(finished.project / "data")
    write_catalog(finished.top / "moved", *(("sentinel", "landsat") if first else ("sentinel",)))
    completed = finished.init("--from", "jo/work/project", "--catalog", "moved")
    assert completed.code == 0, completed.stderr
    search = finished.search
    assert search == {
        "catalog": "../moved",
        "collections": ["sentinel"],
        "ids": ["scene0"],
        "datetime": "2023-08",
        "best": 3,
        "per": "month",
        "assets": ["vv", "vh"],
        "resolution": 10.0,
    }
    assert finished.run("check", "next").code == 0


def test_collections_that_the_other_catalog_has_not_are_asked_for(finished: Finished) -> None:
    write_catalog(finished.project / "data")
    finished.write(catalog="data", collections=["sentinel"])
    write_catalog(finished.top / "moved", "hls", "landsat")
    completed = finished.init("--from", "jo/work/project", "--catalog", "moved")
    assert "moved has the collections hls, landsat; choose one with --collection" in completed.stderr
    assert finished.init("--from", "jo/work/project", "--catalog", "moved", "--collection", "hls").code == 0
    assert finished.search["collections"] == ["hls"]


@pytest.mark.parametrize("folder", ["next", "{top}/next", "a/next", "link/next"])
@pytest.mark.parametrize("text", ["far/data", "./ada/../far/data", "{top}/far/data"])
def test_a_catalog_of_the_command_line_is_the_same_in_the_new_project(
    text: str, folder: str, finished: Finished
) -> None:
    write_catalog(finished.top / "far/data")
    write_model(finished.top / "model", TileProperties(10.0, ("dB",), ("",)))
    (finished.top / "a/b/c").mkdir(parents=True)
    (finished.top / "link").symlink_to("a/b/c")
    folder, text = folder.format(top=finished.top), text.format(top=finished.top)
    completed = finished.run("init", folder, "--from", "model", "--catalog", text)
    assert completed.code == 0, completed.stderr
    catalog = yaml.safe_load(Path(folder, "config.yaml").read_text())["search"]["catalog"]
    assert Path(catalog).is_absolute() == Path(text).is_absolute()
    if Path(text).is_absolute():
        assert catalog == text
    with chdir(folder):
        assert Path(catalog).samefile(finished.top / "far/data")


@pytest.mark.parametrize("text", ["../area.geojson", "{top}/ada/area.geojson"])
def test_the_area_of_a_run_is_copied_and_a_change_since_is_said(text: str, finished: Finished) -> None:
    write_catalog(finished.project / "data")
    file = finished.top / ("ada/area.geojson" if text.startswith("{") else "jo/work/area.geojson")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(AREA))
    finished.write(catalog="data", area=text.format(top=finished.top))
    completed = finished.init("--from", "jo/work/project")
    assert completed.code == 0, completed.stderr
    assert finished.warnings == []
    assert (finished.top / "next/area.geojson").read_bytes() == file.read_bytes()
    file.write_text(json.dumps(AREA, indent=1))
    completed = finished.run("init", "later", "--from", "jo/work/project")
    assert completed.code == 0
    assert [sentence.rpartition("/")[2] for sentence in finished.warnings] == [
        "area.geojson was changed since the run, and is used as it is now"
    ]
    assert (finished.top / "later/area.geojson").read_bytes() == file.read_bytes()
    file.unlink()
    completed = finished.run("init", "last", "--from", "jo/work/project")
    assert "there is no area area.geojson of the run at " in completed.stderr
    assert "give --area or --bbox" in completed.stderr


def test_a_project_that_maps_with_a_finished_model_is_the_start_of_the_next(finished: Finished) -> None:
    write_catalog(finished.top / "ada/far/data")
    finished.write(catalog=f"{finished.top}/ada/far/data")
    (finished.project / "results/model").rename(finished.project / "model")
    fit = {"temperature": 1.2, "model": model_id(finished.project / "model"), "scenes": ["a"], "summary": ""}
    write_json(finished.project / "fit.json", fit | {"symmetries": 1})
    write_json(finished.project / "results/metrics.json", {"of": "another year"})
    config = read_yaml(finished.project / "config.yaml")
    finished.write_config(model="model", calibration="fit.json", **{k: v for k, v in config.items() if k == "search"})
    for number, name in enumerate((".", "results", "config.yaml")):
        completed = finished.run("init", f"next{number}", "--from", f"jo/work/project/{name}")
        assert completed.code == 0, completed.stderr
        following = read_yaml(finished.top / f"next{number}/config.yaml")
        assert following["search"]["catalog"] == f"{finished.top}/ada/far/data"
        assert read_json(finished.top / f"next{number}/calibration.json")["temperature"] == 1.2
        assert not (finished.top / f"next{number}/model/test-scores.json").exists()


def read_yaml(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def test_a_crate_is_the_folder_of_a_model_with_its_calibration_as_before(finished: Finished) -> None:
    write_catalog(finished.project / "data")
    finished.write(catalog="data")
    crate = finished.project / "results/crate"
    shutil.copytree(finished.project / "results/model", crate / "model")
    (crate / "config").mkdir()
    shutil.copyfile(finished.project / "config.yaml", crate / "config/config.yaml")
    completed = finished.init("--from", "jo/work/project/results/crate", "--catalog", "jo/work/project/data")
    assert completed.code == 0, completed.stderr
    assert finished.search["catalog"] == "../jo/work/project/data"
