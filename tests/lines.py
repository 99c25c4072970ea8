"""Lines of the package by capability, a budget in `lines.json`: `python tests/lines.py` prints what grew and what fell.

`limit` is the most lines that the package may have. It only falls, but in a commit whose message has the new number,
which an issue allows. `lines` are those at the last `--write`, and `task_questions` the most places outside of `tasks/`
that ask a task what it is: another way to have what differs between tasks is a method of the task.
"""

import argparse
import ast
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("lines.json")
# What a user has of it, by the folders and modules of the package; the others are what all of them stand on.
CAPABILITIES = {
    "scenes: search, download, tiles": ("stac", "fetch", "scenes", "warp", "tiles", "composites"),
    "labels, chips, splits": ("labels", "chips"),
    "tasks and models": ("tasks", "models"),
    "training": ("loader", "training", "checkpoints", "launch", "telemetry", "train_options", "training_job"),
    "trials": ("trial_settings",),
    "maps": ("inference",),
    "scores": ("evaluation",),
    "areas": ("areas",),
    "pages, cards, products": ("reporting",),
    "provenance": ("provenance", "verify", "publish", "own_files"),
    "what to ask before and after a run": ("planning", "inspection"),
    "runs, clusters, CWL": ("run", "clusters"),
    "stages": ("stages",),
}
OTHERS = "command line, config, contract"


@cache
def package() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "eopipe").rglob("*.py")))


def lines() -> dict[str, int]:
    """The lines of each capability as the package is now."""
    names = {name: capability for capability, folders in CAPABILITIES.items() for name in folders}
    numbers = dict.fromkeys((*CAPABILITIES, OTHERS), 0)
    for path in package():
        name = path.relative_to(ROOT / "eopipe").parts[0].removesuffix(".py")
        numbers[names.get(name, OTHERS)] += len(path.read_text(encoding="utf-8").splitlines())
    return numbers


def task_questions() -> dict[str, int]:
    """How often each module outside of `tasks/` asks a task what it is: by a property that is a bool, or its class."""
    parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in package()}
    of_tasks = {path: tree for path, tree in parsed.items() if path.parent.name == "tasks"}
    classes = [node for tree in of_tasks.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    kinds = {node.name for node in classes if node.name.endswith("Task")}
    names = {name for node in classes if node.name in kinds for name in map(_bool_name, node.body) if name}
    numbers = {
        str(path.relative_to(ROOT)): sum(_asks(node, names, kinds) for node in ast.walk(tree))
        for path, tree in parsed.items()
        if path not in of_tasks
    }
    return {path: number for path, number in numbers.items() if number}


def _bool_name(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id if ast.unparse(node.annotation) in ("bool", "ClassVar[bool]") else ""
    is_bool = isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) == "bool"
    return node.name if is_bool and isinstance(node, ast.FunctionDef) else ""


def _asks(node: ast.AST, names: set[str], kinds: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return any(isinstance(part, ast.Name) and part.id in kinds for part in ast.walk(node))
    return isinstance(node, ast.Attribute) and node.attr in names


def budget() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def changes() -> list[str]:
    """What grew and what fell since the table was written, a line each, and the sum beside its limit."""
    table, numbers = budget(), lines()
    rows = [(name, number - table["lines"].get(name, 0), number) for name, number in numbers.items()]
    total = sum(numbers.values())
    return [
        *(f"{change:+6} lines: {name} ({number})" for name, change, number in rows if change),
        f"{total} lines of at most {table['limit']}; {sum(task_questions().values())} questions to tasks of at most "
        f"{table['task_questions']}",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the changes, or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    help_of_write = "write the lines; the limits become what there is where that is less"
    parser.add_argument("--write", action="store_true", help=help_of_write)
    parser.add_argument("--limit", type=int, help="another limit of all lines, which the message of the commit names")
    arguments = parser.parse_args(argv)
    print("\n".join(changes()))
    if arguments.write:
        table, numbers = budget(), lines()
        total, questions = sum(numbers.values()), sum(task_questions().values())
        limits = {
            "limit": arguments.limit or min(table["limit"], total),
            "task_questions": min(table["task_questions"], questions),
        }
        FILE.write_text(json.dumps(limits | {"lines": numbers}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    main()
