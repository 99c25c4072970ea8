"""The site of the documentation: `make docs` writes it without a warning, and it loads nothing from elsewhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venv/site/bin/mkdocs"
# What a page loads, not what it links to.
LOADED = re.compile(r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?([^"' >]+)|<link\b[^>]*\bhref=["']?([^"' >]+)""")


def build(config: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    if not MKDOCS.exists():
        pytest.skip("mkdocs is not installed; run `make .venv/site`")
    command = [MKDOCS, "build", "--strict", "--config-file", config, "--site-dir", site]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_navigation_and_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    for page in pages:
        name = page.parent / "index.html" if page.name == "README.md" else page.with_suffix(".html")
        assert (site / name).is_file(), page


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {
        (path.name, address)
        for path in site.rglob("*.html")
        for addresses in LOADED.findall(path.read_text())
        for address in addresses
        if address.startswith(("http:", "https:", "//"))
    }
    # A canonical address is stated, not loaded.
    assert loaded == set()


def test_the_reference_has_signature_and_docstring_of_each_function_of_the_api(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())
    for words in ("open_chips", "set_epoch", "Probabilities of the classes (class, y, x)", "allow_code"):
        assert words in text


def test_a_notebook_is_a_page_with_its_figure_and_its_table(site: Path) -> None:
    text = (site / "notebooks/figure-and-table.html").read_text()
    assert "data:image/png;base64," in text
    assert re.search(r"<td>model</td><td>0\.\d{3}</td>", text)
    assert "blob/main/docs/notebooks/figure-and-table.ipynb" in text
    assert 'href="notebooks/own-training-loop.html"' in (site / "python.html").read_text()


def test_the_threat_model_and_the_changes_are_pages_with_links_among_pages(site: Path) -> None:
    assert "Threat model" in (site / "security.html").read_text()
    assert 'href="recipes.html#a-model-of-your-own"' in (site / "security.html").read_text()
    assert 'href="security.html"' in (site / "site.html").read_text()
    assert (site / "changelog.html").is_file()


def test_the_search_works_on_pages_that_are_opened_from_a_folder(site: Path) -> None:
    assert 'src="../iframe-worker.js"' in (site / "concepts/splits.html").read_text()
    assert "IFrameWorker" in (site / "iframe-worker.js").read_text()
    assert (site / "search/search_index.js").read_text().startswith("var __index")
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    assert [path for path, text in pages.items() if re.search(r'<script[^>]*src="?(https?:)?//', text)] == []


def test_links_to_files_beside_the_docs_lead_to_the_repository(site: Path) -> None:
    assert 'href="https://github.com/eopipe/eopipe/blob/main/benchmarks/RESULTS.md' in (
        site / "others.html"
    ).read_text().replace("href=https", 'href="https')


@pytest.mark.parametrize(
    "link", ["[data](dota.md)", "[data](data.md#no-such-part)", "[results](../benchmarks/NONE.md)"]
)
def test_a_link_that_leads_nowhere_stops_the_site(link: str, tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config |= {"plugins": [], "nav": ["index.md", "data.md"], "hooks": [str(ROOT / "dev/site_pages.py")]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/data.md").write_text("# Data\n")
    (tmp_path / "docs/index.md").write_text("# Start\n")
    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode == 0
    (tmp_path / "docs/index.md").write_text(f"# Start\n\n{link}\n")
    shutil.rmtree(tmp_path / "site")
    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode != 0


def longest_text(page: Path) -> int:
    """The words between two pictures, tables or blocks of code."""
    # Odd parts are inside of fences.
    prose = page.read_text().split("```")[::2]
    parts = [re.split(r"^(?:\|.*|.*!\[.*)$", text, flags=re.MULTILINE) for text in prose]
    return max(len(part.split()) for texts in parts for part in texts)


def test_no_two_screens_are_without_a_picture_a_table_or_code() -> None:
    pages = [*(ROOT / "docs").glob("[!a]*/*.md"), *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if longest_text(page) > 800] == []
