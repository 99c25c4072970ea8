"""The bytes of the demo, which change only with a REVISION."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import ROOT, environment

from dev import golden


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The results of `make demo` where it ran before these tests, else of the same config in a folder of its own."""
    if folder := os.environ.get("EOPIPE_DEMO"):
        return Path(folder)
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    shutil.copy(ROOT / "config/config.yaml", tmp_path)
    line = ["eopipe", "run", "--configfile", "config.yaml", "--cores", "2"]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "results"


def test_the_outputs_of_the_demo_have_the_recorded_bytes(results: Path) -> None:
    recorded = json.loads(golden.GOLDEN.read_text())
    current, is_same = golden.digests(results), recorded["processor"] == golden.processor()
    expected = {name: sha for name, sha in recorded["digests"].items() if is_same or golden.is_portable(name)}
    changed = [name for name, sha in expected.items() if current.get(name) != sha]
    assert not changed, "raise the REVISION of the stage that made them, then `make golden`"
    assert current.keys() == recorded["digests"].keys()
    assert sum(golden.is_portable(name) for name in expected) > 50
