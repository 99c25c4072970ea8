"""What each module of eopipe and each symbol below tests/ uses, by imports and by the texts that name modules."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

from eopipe.cli import COMMANDS
from eopipe.contract import STAGES, function_name
from eopipe.train_options import TASK_NAMES

ENTRIES = {name: entry.partition(":")[0] for group in COMMANDS.values() for name, (entry, _) in group.items()}
ENTRIES |= {name: f"eopipe.stages.{function_name(name)}" for name in STAGES}
ROOT = Path(__file__).parents[1]
# A module in a text, or with what follows a colon a function of it.
DOTTED = re.compile(r"\beopipe(?:\.\w+)+(?::\w+)?")


def module_of(file: str) -> str:
    """The module of a file of the package; of another one its own name."""
    module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    return module if file.startswith("eopipe/") else file


class TestFile:
    """A file below tests/: what each of its functions, fixtures, classes and constants uses."""

    def __init__(self, path: Path, modules: dict[str, list[Path]]) -> None:
        self.name = str(path.relative_to(ROOT))
        self.tree = ast.parse(path.read_text())
        self.imports: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            for name, target in _imports(node):
                self.imports.setdefault(name, set()).update(_nodes(target, path, modules))
        self.symbols: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in _names_of(statement):
                self.symbols.setdefault(name, []).append(statement)

    def uses(self, name: str, fixtures: dict[str, str]) -> set[str]:
        """What a symbol uses: modules of eopipe, symbols of this file and of other files below tests/."""
        nodes: set[str] = set()
        for statement in self.symbols[name]:
            for node in ast.walk(statement):
                if text := _text(node):
                    nodes |= {ENTRIES[text]} if text in ENTRIES else _modules(text)
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    # `eopipe.open_cube`
                    targets = self.imports.get(node.value.id, set())
                    nodes |= {lazy_names().get(f"{target}.{node.attr}", "") for target in targets}
                elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
                    "getfixturevalue",
                    "usefixtures",
                ):
                    named = {_text(word) for word in node.args}
                    nodes |= {
                        f"{self.name}::{word}" if word in self.symbols else fixtures.get(word, "") for word in named
                    }
                elif isinstance(node, ast.Name | ast.arg):
                    word = node.id if isinstance(node, ast.Name) else node.arg
                    nodes |= self.imports.get(word, set())
                    if word in self.symbols and word != name:
                        nodes.add(f"{self.name}::{word}")
                    elif isinstance(node, ast.arg) and word in fixtures:
                        nodes.add(fixtures[word])
        return nodes - {""}


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with what it is imported from."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _nodes(target: str, path: Path, modules: dict[str, list[Path]]) -> set[str]:
    """The module of eopipe, or the symbol of a file below tests/, that an import leads to."""
    if target.partition(".")[0] in ("eopipe", "dev"):
        return {lazy_names().get(target, target), target.rpartition(".")[0]}
    stem, _, symbol = target.rpartition(".")
    places = modules.get((stem or target).rpartition(".")[2], [])
    files = [place for place in places if place.parent in (path.parent, ROOT / "tests")] or places
    return {f"{file.relative_to(ROOT)}::{symbol if stem else ''}" for file in files}


def _names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def _modules(text: str) -> set[str]:
    """The modules that a text names, such as `eopipe.planning.plan_command:plan`, or a program that uses them."""
    names = {name.partition(":")[0] for name in DOTTED.findall(text)}
    return {name for name in names if _file_of(name)} | {lazy_names()[name] for name in names & lazy_names().keys()}


def _text(node: ast.AST | None) -> str:
    """The string that a constant is; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def _file_of(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def lazy_names() -> dict[str, str]:
    """The module of each name that a package imports when it is used: what its `__init__` has in a dictionary."""
    names = {}
    for file in (ROOT / "eopipe").rglob("__init__.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            for key, value in pairs:
                if _text(key) and _text(value) and _file_of(_text(value)):
                    names[f"{module_of(str(file.relative_to(ROOT)))}.{_text(key)}"] = _text(value)
    return names


def imports() -> dict[str, set[str]]:
    """What each module of eopipe and each symbol below tests/ uses directly."""
    graph = grimp.build_graph("eopipe", cache_dir=None)
    uses = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    # Tasks are imported by the names of their files.
    uses["eopipe.tasks"] |= {f"eopipe.tasks.{name}" for name in TASK_NAMES}
    for name in uses.keys() - {"eopipe.cli"}:
        file = _file_of(name)
        texts = [_text(node) for node in ast.walk(ast.parse(file.read_text()))] if file else []
        # A package does not use what it has for others.
        of_users = {module for lazy, module in lazy_names().items() if lazy.rpartition(".")[0] == name}
        modules_of_texts = {module for text in texts if DOTTED.fullmatch(text) for module in _modules(text)}
        uses[name] |= modules_of_texts - {name} - of_users
    paths = sorted((ROOT / "tests").rglob("*.py"))
    modules: dict[str, list[Path]] = {}
    for path in paths:
        modules.setdefault(path.stem, []).append(path)
    files = {path: TestFile(path, modules) for path in paths}
    for path, test_file in files.items():
        fixtures: dict[str, str] = {}
        for folder in [*reversed(path.relative_to(ROOT).parents), path.relative_to(ROOT).parent]:
            conftest = files.get(ROOT / folder / "conftest.py")
            fixtures |= {name: f"{conftest.name}::{name}" for name in conftest.symbols} if conftest else {}
        for name in test_file.symbols:
            uses[f"{test_file.name}::{name}"] = test_file.uses(name, fixtures)
        # The file as a whole, for imports of the module.
        uses[f"{test_file.name}::"] = {f"{test_file.name}::{name}" for name in test_file.symbols}
    return uses
