"""Where the model of a document that stages write has other fields, while the REVISION of these stages is the same.

A module of documents says by whom they are written: "as evaluate writes them".
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from eopipe.contract import STAGES, function_name

REVISION = re.compile(r"^REVISION = \d+", re.MULTILINE)
WRITES = re.compile(rf"\b({'|'.join(STAGES)}) writes\b")
# The text of a file of the checkout; empty where there is none.
Texts = Callable[[str], str]


def warnings(files: Sequence[str], before: Texts, after: Texts) -> Iterator[str]:
    """A sentence for each of these files with other fields, where no stage that writes them has a new revision."""
    for file in files:
        if not file.startswith("eopipe/") or not file.endswith(".py"):
            continue
        texts = before(file), after(file)
        old, new = map(fields, texts)
        stages = writers("".join(texts))
        paths = [f"eopipe/stages/{function_name(name)}.py" for name in stages]
        is_raised = any(REVISION.findall(before(path)) != REVISION.findall(after(path)) for path in paths)
        if stages and old and (names := sorted({name for name, _ in old ^ new})) and not is_raised:
            yield (
                f"{file}: {', '.join(names)} changed, but not the REVISION of {' and '.join(stages)}, by which it is "
                "written; raise it if the same inputs and options give other bytes"
            )


def writers(text: str) -> list[str]:
    """The stages that a module says write its documents, in their order."""
    return sorted(set(WRITES.findall(text)), key=STAGES.index)


def fields(text: str) -> set[tuple[str, str]]:
    """The name and the definition of each field of the models in a module; a module without pydantic has none."""
    if not re.search(r"^from pydantic import .*\bBaseModel\b", text, re.MULTILINE):
        return set()
    return {
        (f"{node.name}.{ast.unparse(field.target)}", ast.unparse(field))
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and not node.decorator_list
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
