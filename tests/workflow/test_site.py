"""The setup of a site before each command, and its container, are set in the profile and not in the rules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ROOT, Project, environment

# As `module` often does, it reads variables that are not set.
MODULES = 'module() { echo "$UNSET_VARIABLE$*" >> "$SITE/loaded"; PATH="$SITE/module:$PATH"; }\n'
EOPIPE = '#!/bin/sh\necho "$@" >> "$SITE/ran"\nexec {python} -m eopipe "$@"\n'
APPTAINER = """#!/bin/sh
[ "$1" = --version ] && { echo "apptainer version 1.3.4"; exit; }
echo "$@" >> "$SITE/contained"
while [ "$1" != bash ]; do shift; done
exec "$@"
"""


@pytest.fixture
def site(tmp_path: Path, project: Project) -> Path:
    """A folder with the modules, containers and queue of a site."""
    folder = tmp_path / "site"
    programs = {"module/eopipe": EOPIPE.format(python=sys.executable), "bin/apptainer": APPTAINER}
    for name, text in programs.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "modules.sh").write_text(MODULES)
    (folder / "pool").mkdir()
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config | {"online_nodes": True}))
    return folder


def search(project: Project, site: Path, profile: dict[str, object], *arguments: str) -> None:
    """Run the first rule of the pipeline with a profile."""
    (site / "profile").mkdir()
    (site / "profile/config.yaml").write_text(yaml.safe_dump(profile))
    variables = environment() | {"SITE": str(site), "POOL": str(site / "pool")}
    variables["PATH"] = f"{site / 'bin'}:{ROOT / 'tests/engines'}:{variables['PATH']}"
    command = [sys.executable, "-m", "snakemake", "--profile", site / "profile", "--snakefile", ROOT / "Snakefile"]
    result = subprocess.run(
        [*command, "--configfile", "config.yaml", "--until", "search", *arguments],
        cwd=project.folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (project.results / "items/manifest.json").is_file()


@pytest.mark.exhaustive
def test_modules_are_loaded_before_each_command_of_a_job_in_the_queue(project: Project, site: Path) -> None:
    profile = yaml.safe_load((ROOT / "profiles/pbs/config.yaml").read_text())
    for key, script in (("submit", "submit.py"), ("status", "status.sh")):
        profile[f"cluster-generic-{key}-cmd"] = str(ROOT / "profiles/pbs" / script)
    profile |= {"seconds-between-status-checks": 1, "max-status-checks-per-second": 5, "latency-wait": 5, "retries": 0}
    profile["config"] = {"setup": 'source "$SITE/modules.sh"; module load eopipe/${RELEASE:-1.0}'}
    search(project, site, profile)
    assert (site / "loaded").read_text().split("\n")[:-1] == ["load eopipe/1.0"]
    assert (site / "ran").read_text().startswith("search --")
    assert len((site / "pool/requested").read_text().splitlines()) == 1


@pytest.mark.exhaustive
def test_a_command_runs_in_the_container_that_the_profile_names(project: Project, site: Path) -> None:
    (project.folder / "eopipe.sif").touch()
    profile = {"cores": 1, "software-deployment-method": "apptainer", "apptainer-args": "--nv"}
    search(project, site, profile | {"config": {"container": "eopipe.sif"}})
    contained = (site / "contained").read_text()
    assert " --nv " in contained
    assert f"{project.folder}/eopipe.sif bash -c" in contained or " eopipe.sif bash -c" in contained
    assert "eopipe search --" in contained
    assert os.environ.get("SITE") is None
