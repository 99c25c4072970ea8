"""A period of a project with a finished model: its config, which is kept, its lock, and what drift leads to."""

import fcntl
from pathlib import Path
from typing import Any

import pytest
import yaml

from eopipe.cli import main
from eopipe.clusters.running import name_period, own_options, warn_of_drift
from eopipe.errors import DriftError, UsageError
from eopipe.reporting.status import MapStatus, band_ranges
from eopipe.run.periods import config_of_period
from eopipe.run.project import hold_lock, lock_of
from eopipe.text_files import write_json

SETTINGS: dict[str, Any] = {
    "model": "model",
    "search": {"catalog": "../sample", "datetime": "2018-04", "ids": ["a", "b"]},
    "evaluate": {"sample": "sample.gpkg"},
    "report": {"title": "Forest"},
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(yaml.safe_dump(SETTINGS))
    return Path("config.yaml")


@pytest.mark.parametrize(
    ("period", "name"),
    [("2026-06", "2026-06"), ("2026", "2026"), ("2026-06-01/2026-08", "2026-06-01_2026-08")],
)
def test_a_period_has_the_settings_of_the_project_with_dates_and_folders_of_its_own(
    config: Path, period: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_of_period(config, period)
    assert file == Path(f"config/{name}.yaml")
    assert yaml.safe_load(file.read_text()) == {
        "model": "model",
        "search": {"catalog": "../sample", "datetime": period},
        "evaluate": {},
        "report": {"title": "Forest"},
        "results": f"results/{name}",
        "state": f"state/{name}",
    }
    assert "without search.ids and evaluate.sample, which belong to other scenes" in capsys.readouterr().err


def test_the_config_of_a_period_is_kept_and_what_differs_is_said(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_of_period(config, "2026-06")
    # As a user adds the sample of the map of this period.
    settings = yaml.safe_load(file.read_text()) | {"evaluate": {"sample": "june.gpkg"}}
    file.write_text(yaml.safe_dump(settings))
    capsys.readouterr()
    assert config_of_period(config, "2026-06") == file
    assert capsys.readouterr().err == ""
    config.write_text(yaml.safe_dump(SETTINGS | {"report": {"title": "Wood"}, "predict": {"halo": 8}}))
    assert config_of_period(config, "2026-06") == file
    assert yaml.safe_load(file.read_text()) == settings
    assert "config/2026-06.yaml is kept and differs from config.yaml in predict.halo, report.title" in (
        capsys.readouterr().err
    )


def test_a_config_beside_others_has_periods_beside_theirs(config: Path) -> None:
    Path("north.yaml").write_text(yaml.safe_dump(SETTINGS | {"results": "results-north", "state": "state-north"}))
    file = config_of_period(Path("north.yaml"), "2026-06")
    assert file == Path("config/north-2026-06.yaml")
    assert yaml.safe_load(file.read_text())["results"] == "results-north/2026-06"
    # As in a checkout.
    Path("config/config.yaml").write_text(config.read_text())
    assert config_of_period(Path("config/config.yaml"), "2026-07") == Path("config/2026-07.yaml")


@pytest.mark.parametrize("period", ["2026-06/..", "../2026-06", "..", ""])
def test_a_period_has_a_first_and_a_last_day(config: Path, period: str) -> None:
    with pytest.raises(UsageError, match=r"has no first or no last day; give both"):
        config_of_period(config, period)
    assert not Path("config").exists()


def test_a_project_that_trains_maps_no_period(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        yaml.safe_dump({"search": {"catalog": "../sample"}, "label": {"source": "l.tif", "classes": ["a", "b"]}})
    )
    assert main(["run", "--datetime", "2026-06"]) == 2
    assert "config.yaml trains one; write a project that maps with it: eopipe init" in capsys.readouterr().err
    assert not Path("config").exists()


def test_the_words_of_a_period_are_not_snakemakes() -> None:
    assert own_options(["--datetime", "2026-06", "-n", "--fail-on=drift", "report"]) == (
        ["-n", "report"],
        "2026-06",
        True,
    )
    assert own_options(["--cores", "2"]) == (["--cores", "2"], "", False)
    assert own_options(["--", "--datetime"]) == (["--", "--datetime"], "", False)


@pytest.mark.parametrize(
    "words", [["--datetime"], ["--datetime", "--fail-on"], ["--datetime="], ["--fail-on", "class"]]
)
def test_options_of_a_period_without_a_right_value_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"--datetime needs a value|there is --fail-on drift"):
        own_options(words)


def test_the_config_of_a_period_replaces_the_config_of_the_command_line(config: Path) -> None:
    period = "config/2026-06.yaml"
    assert name_period(["-n"], "2026-06") == ["--configfile", period, "--rerun-incomplete", "-n"]
    assert name_period(["--configfile", "config.yaml", "-n"], "2026-06") == ["--configfile", period, "-n"]
    assert name_period(["--configfile=config.yaml"], "2026-06") == [f"--configfile={period}"]
    with pytest.raises(UsageError, match=r"--datetime needs the one config of a project"):
        name_period(["--directory", "there"], "2026-06")


def test_runs_with_the_same_results_exclude_each_other_and_others_do_not(config: Path) -> None:
    assert lock_of(Path("results")) == Path(".snakemake/eopipe.lock")
    Path(".snakemake").mkdir()
    with lock_of(Path("results/2026-06")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"a run is active with the results results/2026-06"):
            hold_lock(Path("results/2026-06"))
    assert lock_of(Path("results/2026-06")) != lock_of(Path("results/2026-07"))


def status(**changes: Any) -> dict[str, Any]:
    ranges = band_ranges(None, {})
    of_map = MapStatus(
        model="unet-1",
        task="segmentation",
        classes=["water", "wood"],
        scenes=1,
        days=["2026-06-02"],
        compared=True,
        unlike_training=[],
        missing_classes=[],
        areas={"water": {"pixels": 4, "hectares": 0.04}, "wood": {"pixels": 1, "hectares": 0.01}},  # type: ignore[dict-item]
        bands=ranges,
    )
    return of_map.model_dump() | changes


def test_drift_is_a_line_and_a_failure_only_if_so_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "status.json"
    write_json(file, status())
    warn_of_drift(file, is_failure=True)
    assert capsys.readouterr().err == ""
    write_json(file, status(unlike_training=["red: 12 % of the pixels are above 0.2."], missing_classes=["wood"]))
    warn_of_drift(file, is_failure=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["warning: red: 12 % of the pixels are above 0.2.", "warning: The map has no pixel of wood."]
    with pytest.raises(DriftError, match=r"the map has drifted, see .*status\.json") as raised:
        warn_of_drift(file, is_failure=True)
    assert raised.value.code == 10


def test_drift_of_a_training_is_refused_before_it_runs(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = {"source": "l.tif", "classes": ["a", "b"]}
    config.write_text(yaml.safe_dump({"search": {"catalog": "../sample"}, "label": label}))
    assert main(["run", "--fail-on", "drift"]) == 2
    assert "and this config trains one" in capsys.readouterr().err
    warn_of_drift(Path("status.json"), is_failure=False)
    with pytest.raises(UsageError, match=r"there is no status\.json that --fail-on drift could read"):
        warn_of_drift(Path("status.json"), is_failure=True)
