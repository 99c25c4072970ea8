"""What users and developers read is plain technical English: no phrase of a written list occurs, and links resolve."""

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
# Each phrase with what to write instead. A text is compared with every run of white space as one space.
BANNED = {
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|fewer\b|less\b|one\b)\w+": "is not a …, has no …",
    r"\b[Cc]annot be had\b": "could not be fetched, is not available",
    r"\b[Ll]eav(?:e|es|ing) (?:[\w.`'-]+ ){1,4}away\b|\b[Ll]eft away\b": "omit",
    r"\b[Tt]ak(?:e|es|en|ing) (?:[\w.`'-]+ ){0,4}away\b": "remove",
    r"\b[Tt]ells?\b|\b[Tt]old\b|\b[Tt]elling\b": "says, reports, shows, describes, distinguishes",
    r"\banew\b": "again, rebuilt, rewritten",
    r"\b(?:[Gg]o|goes|went|gone|going) on\b": "continue, resume",
    r"\bstands?\b(?!-)|\bstood\b": "is, represents, replaces, is written",
    r"\blies?\b|\b[Ll]ying\b": "is, is stored, is located",
    r"\b[Ww]ants\b": "needs, requires, expects",
    r"\b(?:g[ia]ves?|made|makes?) way\b": "yields, is replaced",
    r"(?:\A|[.:;] |\n)Who(?:ever)? (?![^.]*\?)": "a process, person or job that …",
    r"\b[Bb]rings\b|\bbrought\b": "contains, provides, fetches, loads",
    r"\bof eopipe's\b": "eopipe's …",
    r"\bwithout a word\b": "silently",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\breckon(?:s|ed|ing)?\b": "calculate, count",
    r"\bjudg(?:e|es|ed|ing)\b": "validate, evaluate, score",
    r"\bnot none\b": "exactly one of …",
    r"\b(?:made?|makes?|making) (?:(?:it|them|this|that|these|just that) )?again\b": "rebuild, recompute",
    r"\bwhat there is\b": "the available …",
    r"\bpeople of your cluster\b": "your cluster's support",
    r"\bof before\b": "earlier, older",
    r"\banother's\b": "of another …",
    r"\bspoken\b|\bshall\b|\bhitherto\b|\bwhence\b|\bwhither\b": "plain words",
    r"\A(?:most|fewest) (?!of\b|recent\b)": "maximum number of, minimum number of",
    r"\b(?:comes?|came) out of\b": "is produced by, results from",
    r"\b[Nn]obody's\b|\b[Ss]omebody(?:'s| else)\b": "name who or what",
    r"\bwherever\b|\bas it were\b|\ball the same\b|\bcommonest\b|\bto the bit\b": "where, most frequent",
    r"\bso many\b(?! that\b)": "this number of, `n`",
    r"\bof (?:yours|one's own)\b": "your",
    r"\b(?:bytes|chips|files|lines|MB|MiB|ms|samples|steps|tasks|times) an? (?:band|chip|class|core|epoch|file|hour|"
    r"minute|node|process|sample|scene|second|step|worker)\b": "per",
    r"\bcannot give\b|\bfinds? itself\b|\btake[ns]? for (?:dead|lost)\b": "does not have, is in, treats as",
    r"\bin a sentence each\b|\bsays? so in a sentence\b": "in one sentence for each",
    r"\bthe people of\b|\bgives? back\b|\bput under\b": "name who or what, returns, renamed to",
    r"\b[Tt](?:hat|hose) of\b": "the noun again, or another sentence",
    r"\bevent=[a-z_]+-": "the name of an event with underscores",
}
# Whole phrases that are what the field says.
# The last two are in pages whose digests tests/golden_demo.json has.
ALLOWED = (
    "stands alone",
    "tell-every-s",
    "cannot be told apart",
    "that of their source",
    "of folders, that of their manifest",
)


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
    """Every banned phrase of a file, with its line and what to write instead."""
    hits = []
    texts: Iterable[tuple[int, str]] = (python_texts if path.suffix == ".py" else paragraphs)(path)
    if path.name == "terms.md":
        # The last column of its tables lists what not to say.
        texts = ((line, "|".join(text.split("|")[:4])) for line, text in texts)
    for line, text in texts:
        plain = re.sub(r"\s+", " ", text)
        for phrase in ALLOWED:
            plain = plain.replace(phrase, "")
        for pattern, instead in BANNED.items():
            for match in re.finditer(pattern, plain):
                around = plain[max(0, match.start() - 40) : match.end() + 30]
                hits.append(f"{line}: …{around}… -> {instead}")
    return hits


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_has_a_phrase_of_the_list(path: Path) -> None:
    if hits := phrases(path):
        pytest.fail("\n".join(hits), pytrace=False)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x.tif is no GeoTIFF; leave label.layer away", 2),
        ("There is no such file, and the run is no longer there", 0),
        ("Who finds the lease followed waits.", 1),
        ("Who runs this?", 0),
        ("Times are those of\none run, the seed is that of the first.", 2),
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


@pytest.mark.parametrize("path", [file for file in FILES if file.suffix == ".md"], ids=lambda path: path.name)
def test_every_relative_link_of_a_page_has_a_target(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()) if ":" not in link]
    for link in links:
        name, _, heading = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if heading:
            assert heading in map(anchor, re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)), link
