"""A hook of mkdocs: links to other files of the repository than its pages lead to the repository."""

import re
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(\.\.?/[^)#\s]+|examples/[^)#\s]+)((?:#[^)\s]*)?)(?=\))")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the links that leave docs/. Raises FileNotFoundError for one to a file that there is not."""
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        path = PurePosixPath(normpath(str(folder / match[1])))
        if path.parts[0] == "docs" and path.parts[1:2] != ("examples",):
            return match[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        return f"{source}/blob/main/{path}{match[2]}"

    return LINK.sub(replaced, markdown)
