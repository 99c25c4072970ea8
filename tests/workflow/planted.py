"""A project in a home folder, with secrets in its environment, paths and catalog."""

import json
import shutil
from pathlib import Path

import pytest
from projects import ROOT, Project

KEY, TOKEN, SIGNATURE, PASSWORD, USER = "AKIA-5ecret-key", "t0ken-of-host", "s1gnature", "pa55word", "grace-hopper"


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Create the project and its environment; the items of its catalog contain signed URLs."""
    home = folder / "home" / USER
    project = Project(home / "project")
    project.folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("EOPIPE_TOKEN_EXAMPLE_ORG", TOKEN)
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    signed = f"https://{USER}:{PASSWORD}@example.org/item.json?se=2030-01-01&sig={SIGNATURE}"
    for path in project.folder.glob("sample/*/*/*.json"):
        item = json.loads(path.read_text())
        item["links"].append({"rel": "via", "href": signed})
        item["properties"]["note"] = signed
        for asset in item["assets"].values():
            asset["alternate"] = {"mirror": {"href": signed}}
        path.write_text(json.dumps(item))
    return project
