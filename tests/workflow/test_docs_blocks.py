"""Every console block of the pages runs as a user types it, in a folder with a finished run.

A block that needs something else has a comment before it in the page's source, `<!-- needs: what -->`: the commands and
options in it exist. What a page describes before a block, such as an edit, is a comment before it, `<!-- first: command
-->`. Those of the README run always, in the environment that its first line makes; the others are exhaustive.
"""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from projects import ROOT, Project, environment
from snakemake.cli import get_argument_parser

from dev.figures import DRAWN, draw
from eopipe.cli import PASSED_ON, definitions
from eopipe.clusters.running import HELP
from eopipe.contract import STAGES, stage

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "config/README.md",
    ROOT / "sample/README.md",
]
BLOCK = re.compile(r"((?:^<!-- [^>]* -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Parts of a checkout that the pages name.
CHECKOUT = ("Snakefile", "workflow", "profiles", "sample", "cwl", "docs")


@dataclass(frozen=True)
class Block:
    """A block of commands, with where it is and what it needs."""

    place: str
    needs: str
    text: str


def blocks() -> list[Block]:
    rows = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match[2] == "console":
                needs = re.search(r"<!-- needs: (.*?) -->", match[1])
                line = text[: match.start(2)].count("\n") + 1
                place = f"{page.relative_to(ROOT)}:{line}"
                first = re.findall(r"<!-- first: (.*?) -->\n", match[1])
                rows.append(Block(place, needs[1] if needs else "", "\n".join([*first, match[3]])))
    return rows


BLOCKS = blocks()
OF_README = [block for block in BLOCKS if not block.needs and block.place.startswith("README.md")]
EXECUTED = [pytest.param(block, id=block.place) for block in BLOCKS if not block.needs and block not in OF_README]
PARSED = [pytest.param(block, id=block.place) for block in BLOCKS if block.needs]


def test_the_blocks_of_the_pages_are_known() -> None:
    assert (len(EXECUTED), len(OF_README)) >= (7, 1)
    assert len(PARSED) <= 21
    # A block of commands without a language would be neither.
    plain = [
        f"{page.relative_to(ROOT)}: {match[3].splitlines()[0]}"
        for page in PAGES
        for match in BLOCK.finditer(page.read_text())
        if match[2] in ("", "sh", "bash", "shell") and re.match(r"(eopipe|snakemake|make|pip|cwltool) ", match[3])
    ]
    assert plain == []


@pytest.fixture(scope="module")
def checkout(demo: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the demo ran, with a small model, and beside its files the project my-area."""
    folder = tmp_path_factory.mktemp("checkout") / "eopipe"
    shutil.copytree(demo.folder, folder, ignore=shutil.ignore_patterns("sample"))
    for name in CHECKOUT:
        (folder / name).symlink_to(ROOT / name)
    for name in ("config", "my-area"):
        (folder / name).mkdir()
        shutil.copyfile(demo.folder / "config.yaml", folder / name / "config.yaml")
    (folder / "my-area/sample").symlink_to(ROOT / "sample")
    (folder / "config.yaml").unlink()
    return folder


def run_block(block: Block, folder: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("block", EXECUTED)
def test_a_block_runs_as_it_is(block: Block, checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eopipe"
    shutil.copytree(checkout, folder, symlinks=True)
    run_block(block, folder, environment() | {"HOME": str(tmp_path)})


@pytest.mark.launch
def test_the_blocks_of_the_readme_run_where_its_first_line_has_installed(demo: Project, tmp_path: Path) -> None:
    clone = tmp_path / "eopipe"
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.splitlines():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
    # The demo ran already, with a small model: its crate alone is made again, since it has the workflow of this folder.
    shutil.copytree(demo.folder, clone, ignore=shutil.ignore_patterns("sample"), symlinks=True, dirs_exist_ok=True)
    (clone / "config.yaml").replace(clone / "config/config.yaml")
    bare = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    search = [folder for folder in os.environ["PATH"].split(":") if not Path(folder, "eopipe").exists()]
    subprocess.run(["make", "--silent", "demo"], cwd=clone, env=bare | {"PATH": ":".join(search)}, check=True)
    path = ":".join([str(clone / ".venv/bin"), *search])
    for block in OF_README:
        run_block(block, clone, bare | {"PATH": path, "HOME": str(tmp_path)})
    weights = [clone / name / "model.safetensors" for name in ("cwl/model", "results/model")]
    assert all(file.is_file() for file in weights)


@pytest.mark.parametrize("block", PARSED)
def test_the_commands_and_options_of_a_marked_block_exist(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|\|", line):
            words = shlex.split(command, comments=True)
            if words[:1] == ["eopipe"] and words != ["eopipe", "--version"]:
                assert options(words) <= options_of_eopipe(*words[1:]), line
            if words[:1] == ["snakemake"]:
                assert options(words) <= options_of_snakemake(), line
            if words[:1] == ["make"]:
                assert {word for word in words[1:] if "=" not in word and word[0] != "-"} <= targets(), line
            if script := re.search(r"\bpython (?:-m )?(\S+)", command):
                path = ROOT / script[1]
                assert path.is_file() or find_spec(script[1]), line


def options(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("-")}


def options_of_eopipe(name: str, *others: str) -> set[str]:
    """The options of a command, or of the one below it that its first word names, with those that it passes on."""
    if name == PASSED_ON:
        return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", HELP)) | options_of_snakemake()
    commands = {"": stage(name)} if name in STAGES else definitions(name)
    ports = commands[others[0] if others and others[0] in commands else ""].ports
    stages = {getattr(port.mark, "stage", "") for port in ports} - {""}
    return {"-h", "--help", *(port.flag for port in ports)}.union(*(options_of_eopipe(name) for name in stages))


@cache
def targets() -> set[str]:
    """The targets of the Makefile."""
    rows = re.findall(r"^([\w./ -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name for row in rows for name in row.split()}


@cache
def options_of_snakemake() -> set[str]:
    return {option for action in get_argument_parser()._actions for option in action.option_strings}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_the_figures_of_the_concepts_are_drawn_from_a_run_with_the_same_bytes(
    name: str, demo: Project, tmp_path: Path
) -> None:
    for target in ("first.svg", "second.svg"):
        draw(name, demo.results, tmp_path / target)
    text = (tmp_path / "first.svg").read_text()
    assert text == (tmp_path / "second.svg").read_text()
    # The others show pixels and jobs of the demo, which has more dates and steps than this run.
    assert name != "stage" or text == (ROOT / "docs/figures/stage.svg").read_text()
