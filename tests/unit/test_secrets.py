"""Credentials, paths and names are planted and searched for in records, messages and the config of a crate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenery import Catalog, Run, search_outputs, write_raster

from eopipe.provenance.redact import redact_config, redact_for_record, redact_for_terminal, redact_message
from eopipe.text_files import read_json

KEY, TOKEN, SIGNATURE, PASSWORD = "AKIA-5ecret-key", "t0ken-of-the-host", "s1gnature%3D", "pa55word"
SECRETS = (KEY, TOKEN, SIGNATURE, PASSWORD, "grace-hopper")
SIGNED = f"https://grace:{PASSWORD}@example.org/a.tif?se=2030-01-01&sig={SIGNATURE}"


@pytest.fixture(autouse=True)
def planted_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home folder, a user name and credentials in the environment, as in a shell."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("EOPIPE_TOKEN_EXAMPLE_ORG", TOKEN)
    monkeypatch.setenv("HOME", "/srv/people/grace-hopper")
    monkeypatch.setenv("LOGNAME", "grace-hopper")
    project = tmp_path / "grace-hopper/project"
    project.mkdir(parents=True)
    monkeypatch.chdir(project)


def file_texts(root: Path) -> dict[str, str]:
    """Every file below a folder, as text."""
    return {str(p): p.read_bytes().decode(errors="replace") for p in root.rglob("*") if p.is_file()}


def is_redacted(text: str) -> bool:
    return not [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize(
    "message",
    [
        f"no answer from {SIGNED}: 403",
        f"Max retries exceeded with url: /a.tif?sig={SIGNATURE} (Caused by nothing)",
        f"header Authorization: Bearer {TOKEN}",
        f"key {KEY} is not known, see /srv/people/grace-hopper/.aws",
        "grace-hopper may not read it",
    ],
)
def test_a_message_that_goes_out_holds_no_secret(message: str) -> None:
    assert is_redacted(redact_message(message)), redact_message(message)


def test_a_message_for_the_terminal_keeps_its_paths(tmp_path: Path) -> None:
    assert (
        redact_for_terminal(f"cannot read {tmp_path}/a.tif of {SIGNED}")
        == f"cannot read {tmp_path}/a.tif of https://example.org/a.tif"
    )
    assert redact_for_terminal("no /srv/people/grace-hopper/x.tif") == "no ~/x.tif"


def test_a_record_has_paths_relative_to_the_folder_of_the_job(tmp_path: Path) -> None:
    folder = Path.cwd()
    arguments = ["--tiles", str(folder / "results/a.zarr"), "--source", str(tmp_path / "labels.tif"), f"--url={SIGNED}"]
    assert redact_for_record(arguments) == [
        *("--tiles", "results/a.zarr", "--source", "../../labels.tif"),
        "--url=https://example.org/a.tif",
    ]
    assert redact_for_record("/srv/people/grace-hopper/x.tif") == "x.tif"
    up = "../" * (len(folder.parts) - 1)
    assert redact_for_record([f"{up}srv/people/ada/x.tif", f"--source={up}srv/y.tif"]) == ["x.tif", "--source=y.tif"]
    assert redact_for_record("../area.geojson") == "../area.geojson"
    assert redact_for_record(["name=/opt/w.pt", 3, None, "1/2"]) == ["name=w.pt", 3, None, "1/2"]


def test_the_config_in_a_crate_holds_no_path_of_the_machine_and_no_secret() -> None:
    text = f"""# of /srv/people/grace-hopper/notes
label:
  source: /srv/people/grace-hopper/my labels/tree cover.tif
search: {{url: "{SIGNED}", area: ../area.geojson, catalog: ~/stac}}
crate: {{title: "{TOKEN}"}}
"""
    clean = redact_config(text)
    assert is_redacted(clean), clean
    assert "source: tree cover.tif\n" in clean
    assert "area: ../area.geojson" in clean
    assert 'url: "https://example.org/a.tif"' in clean


def test_a_config_with_a_login_in_an_address_is_refused_and_not_repeated(run: Run, tmp_path: Path) -> None:
    Path("config.yaml").write_text(json.dumps({"search": {"url": SIGNED}, "label": {"source": "a.tif"}}))
    completed = run("check", "config.yaml")
    assert completed.code == 2
    assert "search.url has a login or token in its URL; remove it" in completed.stderr
    assert is_redacted(completed.stderr)


def test_signatures_anywhere_in_an_item_are_not_frozen(run: Run, catalog: Catalog) -> None:
    item: dict[str, Any] = catalog.add("A")
    item["assets"]["red"]["alternate"] = {"mirror": {"href": SIGNED}}
    item["links"] = [
        {"rel": "self", "href": SIGNED},
        {"rel": "license", "href": f"https://example.org/l?token={TOKEN}"},
    ]
    item["properties"]["thumbnail"] = SIGNED
    assert run("search", "--catalog", catalog.write(), *search_outputs(Path("results")), "--assets", "red").code == 0
    frozen = read_json(Path("results/items/A.geojson"))
    assert frozen["assets"]["red"]["alternate"]["mirror"]["href"] == "https://example.org/a.tif"
    for path, text in file_texts(Path("results")).items():
        assert is_redacted(text), path


def test_an_error_and_a_bug_leave_no_secret_behind(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalog.add("A")
    assert run("search", "--catalog", catalog.write(), *search_outputs(Path("results")), "--assets", "red").code == 0
    source = write_raster(Path.cwd() / "truth.tif", np.zeros((32, 32), np.uint8), nodata=255)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError(f"{SIGNED} and {KEY} at {source.absolute()}")

    monkeypatch.setattr("rasterio.open", refuse)
    completed = run(
        "label", "--grid", "results/grid.json", "--labels", "results/all.zarr", "--source", source.absolute()
    )
    assert completed.code == 70
    assert "RuntimeError: https://example.org/a.tif and (secret) at truth.tif" in completed.stderr
    record = read_json(Path("results/all.zarr.run.json"))
    assert record["error"].startswith("a bug in eopipe: RuntimeError: https://example.org/a.tif and (secret)")
    assert is_redacted(completed.stderr), completed.stderr
    for path, text in file_texts(Path("results")).items():
        assert is_redacted(text), path
        assert str(tmp_path) not in text, path
