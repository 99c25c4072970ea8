"""A hook of mkdocs: notebooks and some files above docs/ are pages, links to others lead to the repository."""

import json
import re
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(\.\.?/[^)#\s]+|examples/[^)#\s]+)((?:#[^)\s]*)?)(?=\))")
# Files of the repository's root that are pages too, and their links.
ROOT_PAGES = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
ROOT_LINK = re.compile(r"(?<=\]\()(?!https?:|#)")
# The plugin offline has it from another server.
SHIM = "https://unpkg.com/iframe-worker/shim"
NOTEBOOK = re.compile(r"(?<=\]\()(notebooks/[\w-]+)\.ipynb(?=\))")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook, with the outputs that it has, and the pages of the root that the navigation has."""
    from mkdocs.structure.files import File

    for path in sorted(Path(config["docs_dir"]).glob("notebooks/*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebook_page(path)))
    for name, page in ROOT_PAGES.items():
        if page not in str(config["nav"]):
            continue
        files.append(File.generated(config, page, content=ROOT_LINK.sub("../", (ROOT / name).read_text())))
    return files


def notebook_page(path: Path) -> str:
    """The Markdown of a notebook: its texts, code, and outputs as text, HTML or PNG."""
    parts: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
            if "image/png" in data:
                image = data["image/png"].replace("\n", "")
                parts.append(f'<img alt="What the code above draws" src="data:image/png;base64,{image}">')
            elif "text/html" in data:
                table = data["text/html"].replace("\n", "").replace("<table>", '<table class="scores">')
                parts.append(f'<div class="output" tabindex="0">{table}</div>')
            else:
                parts.append(f"```text\n{data.get('text/plain') or ''.join(output.get('text', ()))}\n```")
    parts.append(f"This page is a notebook: [{path.name}](../../docs/notebooks/{path.name}).")
    return "\n\n".join(parts) + "\n"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load what the search of pages in a folder needs from the site itself."""
    return output.replace(SHIM, relpath("iframe-worker.js", PurePosixPath(page.url).parent))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same in the page for addresses that there are not."""
    return output_content.replace(SHIM, "iframe-worker.js")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Replace the links that leave docs/. Raises FileNotFoundError for one to a file that there is not."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        path = PurePosixPath(normpath(str(folder / match[1])))
        is_page = path.parts[0] == "docs" and path.parts[1:2] != ("examples",) and path.suffix != ".ipynb"
        if is_page:
            return f"{relpath(path, folder)}{match[2]}"
        if str(path) in ROOT_PAGES and ROOT_PAGES[str(path)] in str(config["nav"]):
            return f"{relpath(f'docs/{ROOT_PAGES[str(path)]}', folder)}{match[2]}"
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        return f"{source}/blob/main/{path}{match[2]}"

    return LINK.sub(replaced, NOTEBOOK.sub(r"\1.md", markdown))
