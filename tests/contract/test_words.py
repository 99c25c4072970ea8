"""What users and developers read: sentences begin with their subject, events have plain names, and links resolve."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROSE = ("*.md", "docs/**/*.md", "config/**/*.md", "config/**/*.yaml", "benchmarks/**/*.md", "sample/*.md")
SOURCES = ("eopipe/**/*.py", "dev/**/*.py", "snakemake_report_plugin_eopipe/*.py")
TEXTS = ("eopipe/**/*.html", "eopipe/**/*.yaml", "workflow/**/*", "Snakefile", "Makefile", "profiles/**/*.yaml")
FILES = sorted({path for pattern in (*PROSE, *SOURCES, *TEXTS) for path in ROOT.glob(pattern) if path.is_file()})
# Each pattern with what to write instead. A text is compared with every run of white space as one space.
REFUSED = {
    r"(?:\A|[.:;] )Of (?!course\b)[a-z]": "the sentence as one would say it: its subject first",
    r"\bevent=[a-z_]+-": "the name of an event with underscores",
}


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every string with a blank, docstrings included, and every comment; fields of f-strings become `{}`."""
    source = path.read_text()
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
    comments = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    for token in comments:
        yield token.start[0], token.string.lstrip("# ")


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """Every paragraph, row of a table and entry of a list of a text file, with its first line."""
    start, lines = 1, []
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if lines and (not line.strip("# ") or re.match(r"\s*(?:#|[-*|]|\d+\.)\s", line)):
            yield start, " ".join(lines)
            lines = []
        if line.strip("# "):
            start = start if lines else number
            lines.append(line.strip().lstrip("# "))


def phrases(path: Path) -> list[str]:
    """Every refused phrase of a file, with its line and what to write instead."""
    hits = []
    texts: Iterable[tuple[int, str]] = (python_texts if path.suffix == ".py" else paragraphs)(path)
    for line, text in texts:
        plain = re.sub(r"\s+", " ", text)
        for pattern, instead in REFUSED.items():
            for match in re.finditer(pattern, plain):
                around = plain[max(0, match.start() - 40) : match.end() + 30]
                hits.append(f"{line}: …{around}… -> {instead}")
    return hits


def test_no_text_has_a_phrase_of_the_list() -> None:
    hits = [f"{path.relative_to(ROOT)}:{hit}" for path in FILES for hit in phrases(path)]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Of each trial the best score is shown", 1),
        ("Scores are sorted. Of several, the first is used", 1),
        ("The scores are of each trial. Of course they differ", 0),
        ("the log has event=lease-lost and event=lease_lost", 1),
    ],
)
def test_the_list_finds_what_it_should(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text(text)
    (tmp_path / "code.py").write_text(f'"""{text}"""\n')
    assert [len(phrases(tmp_path / name)) for name in ("text.md", "code.py")] == [count, count]


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub derives it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def leads_nowhere(path: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = path.parent / name if name else path
    if not heading or not target.exists():
        return not target.exists()
    return heading not in map(anchor, re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE))


def test_every_relative_link_of_a_page_has_a_target() -> None:
    pages = [file for file in FILES if file.suffix == ".md"]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^):\s]+)\)", page.read_text())]
    assert [f"{page.name}: {link}" for page, link in links if leads_nowhere(page, link)] == []
