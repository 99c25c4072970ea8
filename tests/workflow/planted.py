"""A project in the home of somebody whose environment, paths and catalog are full of secrets."""

import json
import shutil
from pathlib import Path

import pytest
from projects import ROOT, Project

KEY, TOKEN, SIGNATURE, PASSWORD, USER = "AKIA-5ecret-key", "t0ken-of-host", "s1gnature", "pa55word", "grace-hopper"


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Such a project, and the environment that goes with it; its catalog's items are signed all over."""
    home = folder / "home" / USER
    made = Project(home / "project")
    made.folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("EOPIPE_TOKEN_EXAMPLE_ORG", TOKEN)
    shutil.copytree(ROOT / "sample", made.folder / "sample")
    signed = f"https://{USER}:{PASSWORD}@example.org/item.json?se=2030-01-01&sig={SIGNATURE}"
    for path in made.folder.glob("sample/*/*/*.json"):
        item = json.loads(path.read_text())
        item["links"].append({"rel": "via", "href": signed})
        item["properties"]["note"] = signed
        for asset in item["assets"].values():
            asset["alternate"] = {"mirror": {"href": signed}}
        path.write_text(json.dumps(item))
    return made
