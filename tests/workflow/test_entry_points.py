"""The ways into the workflow: Snakefile of a checkout, `workflow/Snakefile`, modules, and what snakedeploy writes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from projects import OPTIONAL, ROOT, Project, environment

from eopipe.clusters.executor_patches import WORKFLOW_FILES
from eopipe.contract import STAGES

ADDRESS = "https://github.com/eopipe/eopipe"
MODULE = """
module eopipe:
    snakefile: {}
    config: config
use rule * from eopipe
"""
# As snakedeploy 0.17.1 writes it for `snakedeploy deploy-workflow https://github.com/eopipe/eopipe . --tag v0`.
DEPLOYED = """\
from snakemake.utils import min_version


min_version("6.10.0")


configfile: "config/config.yaml"


# declare https://github.com/eopipe/eopipe as a module
module eopipe:
    snakefile:
        github("eopipe/eopipe", path="workflow/Snakefile", tag="v0")
    config:
        config


# use all rules from https://github.com/eopipe/eopipe
use rule * from eopipe
"""
# Where the search is to run again, later jobs are not known.
FORCED = ("--forcerun", "fetch", "label")
ENTRIES = {
    "workflow/Snakefile": (ROOT / "workflow/Snakefile").read_text,
    "module of workflow/Snakefile": lambda: MODULE.format(f"'{ROOT}/workflow/Snakefile'"),
    "module of the Snakefile": lambda: MODULE.format(f"'{ROOT}/Snakefile'"),
    "module of a repository on disk": lambda: MODULE.format("REMOTE"),
    "deployed module": lambda: DEPLOYED,
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the address of the repository leads to a bare clone of this checkout."""
    folder = tmp_path_factory.mktemp("remote")
    for name in ("workflow", "config"):
        shutil.copytree(ROOT / name, folder / "source" / name)
    for name in ("Snakefile", "constraints.txt"):
        shutil.copy(ROOT / name, folder / "source")
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "a"], ["tag", "v0"]):
        subprocess.run(["git", *arguments], cwd=folder / "source", check=True)
    subprocess.run(["git", "clone", "-q", "--bare", folder / "source", folder / "eopipe.git"], check=True)
    (folder / "gitconfig").write_text(f'[url "file://{folder}/eopipe.git"]\n\tinsteadOf = {ADDRESS}\n')
    return {
        "REMOTE": f"git+file://{folder}/source/workflow/Snakefile@v0",
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def dry_run(folder: Path, variables: dict[str, str], *arguments: object) -> str:
    command = ["snakemake", "--cores", "2", "--dry-run", "--printshellcmds", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment() | variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def jobs(output: str) -> list[tuple[str, str, str]]:
    """Kind and name of the rule of each job, its threads, and its command."""
    blocks = re.split(r"\n(?=(?:local)?(?:rule|checkpoint) \w+:\n)", output)[1:]
    words = [re.search(r"((?:local)?(?:rule|checkpoint) \w+):", block) for block in blocks]
    threads = [re.search(r"^    threads: (\d+)", block, re.MULTILINE) for block in blocks]
    lines = [re.search(r"eopipe \w+ .*", block) for block in blocks]
    rows = zip(words, threads, lines, strict=True)
    return sorted((word[1] if word else "", n[1] if n else "1", line[0] if line else "") for word, n, line in rows)


@pytest.fixture(scope="module")
def reference(finished: Project) -> list[tuple[str, str, str]]:
    """The jobs of a whole run, as the Snakefile of the checkout plans them."""
    rows = jobs(dry_run(finished.folder, {}, "--snakefile", ROOT / "Snakefile", "--configfile", "config.yaml", *FORCED))
    assert {line.split()[1] for _, _, line in rows if line} == set(STAGES) - OPTIONAL - {"search"}
    return rows


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_plans_the_same_jobs_and_reruns_none_of_a_finished_run(
    name: str, finished: Project, reference: Any, remote: dict[str, str], tmp_path: Path
) -> None:
    file = ROOT / name
    if not file.is_file():
        file = tmp_path / "Snakefile"
        file.write_text(ENTRIES[name]().replace("REMOTE", f"'{remote['REMOTE']}'"))
    entry = ("--snakefile", file, "--configfile", "config.yaml")
    assert jobs(dry_run(finished.folder, remote, *entry, *FORCED)) == reference
    assert "Nothing to be done" in dry_run(finished.folder, remote, *entry)


AGAIN = """
use rule split as split_again with:
    output:
        chips="again/split.json",
        statistics="again/statistics.json",
        map="again/split.png",
        outlines="again/split.gpkg",
    log: "again/split.log"
    benchmark: "again/split.tsv"
"""


@pytest.mark.parametrize(
    "base",
    [
        "include: '{root}/workflow/Snakefile'",
        pytest.param(MODULE.format("'{root}/Snakefile'"), marks=pytest.mark.exhaustive),
    ],
)
def test_a_rule_that_a_snakefile_derives_runs(base: str, finished: Project, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(finished.folder, folder, symlinks=True)
    again = AGAIN if base.startswith("include") else AGAIN.replace("rule split as", "rule split from eopipe as")
    (folder / "Snakefile").write_text(base.format(root=ROOT) + again)
    command = ["snakemake", "again/split.json", "--cores", "1", "--configfile", "config.yaml"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "again/split.json").read_bytes() == (finished.results / "split.json").read_bytes()


def test_a_folder_that_snakedeploy_made_runs_with_its_own_config(remote: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/Snakefile").write_text(DEPLOYED)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    # It copies no data: the paths of the demo's config are missing.
    command = ["snakemake", "--cores", "2", "--dry-run"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment() | remote, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "error: there is no search.catalog sample" in done.stdout + done.stderr
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    planned = {line.split()[1] for _, _, line in jobs(dry_run(tmp_path, remote)) if line}
    assert set(STAGES) - planned == OPTIONAL | {"fetch", "preprocess"}, "the scenes are not known yet"
    (copies,) = (tmp_path / ".snakemake/eopipe").iterdir()
    for path in WORKFLOW_FILES:
        assert (copies / path).read_bytes() == (ROOT / path).read_bytes()


def test_a_mistake_in_the_config_of_a_module_is_one_sentence(
    remote: dict[str, str], project: Project, tmp_path: Path
) -> None:
    project.write(train={"epoch": 5})
    (tmp_path / "module.smk").write_text(DEPLOYED)
    command = ["snakemake", "--cores", "1", "--dry-run", "--snakefile", str(tmp_path / "module.smk")]
    done = subprocess.run(
        [*command, "--configfile", "config.yaml"],
        cwd=project.folder,
        env=environment() | remote,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    # Snakemake says that it clones the module, unless a test before has done so.
    (error,) = (line for line in (done.stdout + done.stderr).strip().splitlines() if not line.startswith("Cloning "))
    assert error.startswith("error: config.yaml: train has no setting epoch")


@pytest.mark.exhaustive
def test_a_module_may_change_one_rule_and_rename_the_others(finished: Project, reference: Any, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(
        MODULE.format(f"'{ROOT}/workflow/Snakefile'") + "use rule preprocess from eopipe with:\n    threads: 2\n"
    )
    entry = ("--snakefile", tmp_path / "Snakefile", "--configfile", "config.yaml", *FORCED)
    planned = jobs(dry_run(finished.folder, {}, *entry))
    changed = [(rule, *_) for rule, *_ in planned if rule == "rule preprocess"]
    assert [row[:2] for row in planned if row not in reference] == [(rule, "2") for rule, *_ in changed]
    assert len(planned) == len(reference)
    renamed = MODULE.replace("use rule * from eopipe", "use rule * from eopipe as eo_*")
    (tmp_path / "Snakefile").write_text(renamed.format(f"'{ROOT}/workflow/Snakefile'"))
    entry = (*entry[:4], "--forcerun", "eo_fetch", "eo_label")
    assert len(jobs(dry_run(finished.folder, {}, *entry))) == len(reference)


def test_the_files_of_a_remote_workflow_are_all_of_those_in_the_checkout() -> None:
    rules = {str(path.relative_to(ROOT)) for path in (ROOT / "workflow").rglob("*") if path.is_file()}
    assert rules | {"Snakefile", "constraints.txt"} == set(WORKFLOW_FILES)
    assert not [
        name for name in WORKFLOW_FILES if (ROOT / name).read_text() != (ROOT / name).read_text().rstrip() + "\n"
    ]


def test_the_end_of_a_run_has_its_summary_also_in_a_module(project: Project, tmp_path: Path) -> None:
    (tmp_path / "module.smk").write_text(
        "onstart:\n    print('a start of its own')\n" + MODULE.format(f"'{ROOT}/workflow/Snakefile'")
    )
    (project.results).mkdir()
    (project.results / "report.html").write_text("a report of an earlier run")
    command = ["snakemake", "--cores", "1", "--snakefile", str(tmp_path / "module.smk"), "--configfile", "config.yaml"]
    done = subprocess.run(
        [*command, "--", "results/grid.json"],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a start of its own" in done.stdout
    assert done.stdout.count("Look at:\n  results/report.html") == 1
