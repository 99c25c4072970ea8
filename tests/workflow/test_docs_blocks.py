"""Every console block of the pages runs as a user types it, in a folder with a finished run.

A block that needs something else has a comment before it in the page's source, `<!-- needs: what -->`: the commands and
options in it exist. What a page describes before a block, such as an edit, is a comment before it, `<!-- first: command
-->`. Those of the README that no comment `<!-- long -->` precedes run always, the others are exhaustive.
"""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
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
    is_exhaustive: bool
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
                is_exhaustive = page != ROOT / "README.md" or "<!-- long -->" in match[1]
                first = re.findall(r"<!-- first: (.*?) -->\n", match[1])
                rows.append(Block(place, needs[1] if needs else "", is_exhaustive, "\n".join([*first, match[3]])))
    return rows


BLOCKS = blocks()
EXECUTED = [
    pytest.param(block, id=block.place, marks=[pytest.mark.exhaustive] if block.is_exhaustive else [])
    for block in BLOCKS
    if not block.needs
]
PARSED = [pytest.param(block, id=block.place) for block in BLOCKS if block.needs]


def test_the_blocks_of_the_pages_are_known() -> None:
    assert len(EXECUTED) >= 7
    assert len(PARSED) <= 19
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


@pytest.mark.parametrize("block", EXECUTED)
def test_a_block_runs_as_it_is(block: Block, checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "eopipe"
    shutil.copytree(checkout, folder, symlinks=True)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
        env=environment() | {"HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", PARSED)
def test_the_commands_and_options_of_a_marked_block_exist(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|\|", line):
            words = shlex.split(command, comments=True)
            if words[:1] == ["eopipe"] and words != ["eopipe", "--version"]:
                assert options(words) <= options_of_eopipe(*words[1:]), line
            if words[:1] == ["snakemake"]:
                assert options(words) <= options_of_snakemake(), line


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
