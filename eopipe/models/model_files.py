"""The files of a custom model: its modules, those that they import from beside them, and what its arguments name.

From them follow the inputs of a training, its identity and the copy in the model folder. Nothing is run here: imports
are read from the syntax tree.
"""

import ast
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from eopipe.errors import IntegrityError, UsageError
from eopipe.publish import sha256, visible_files

# Folders of the copies in a model folder: modules, and files that arguments name.
CODE, FILES = "code", "files"
# An argument with one of these endings is meant as a file, so it must exist.
FILE_ENDINGS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz", ".json", ".yaml", ".yml", ".toml")
# Recorded for every job, whatever it imports.
ALWAYS_RECORDED = ("torch", "numpy", "eopipe")


@dataclass(frozen=True)
class ModelFile:
    """A file of a custom model: its path in the model folder, its sha256, and where its content is now."""

    name: str
    sha256: str
    path: Path = field(compare=False)

    def check(self) -> None:
        """Raise IntegrityError where the content is another, or missing."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise IntegrityError(f"{self.path}, a file of the model, cannot be read: {error.strerror}") from error
        if _digest(self.path, status.st_mtime_ns, status.st_size) != self.sha256:
            raise IntegrityError(
                f"{self.path} does not have the digest that is recorded for this file of the model; "
                "use the model as it was trained, or train it again"
            )


def is_code(file: ModelFile) -> bool:
    """Whether a file of a model is one of its modules, rather than one that its arguments name."""
    return file.name.startswith(f"{CODE}/")


@cache
def _digest(path: Path, mtime: int, size: int) -> str:  # noqa: ARG001 - part of the key
    return sha256(path)


def module_of(architecture: str) -> str:
    """The module of a custom model, a dotted name or the path of a file; empty for a built-in model."""
    module, colon, _ = architecture.partition(":")
    return module if colon else ""


def find_model_files(values: Mapping[str, Any]) -> tuple[Path, ...]:
    """Modules and packages of the model that `architecture` names, and files and folders that `arguments` name.

    `values` are the stage train's; what its `model_files` lists already is not looked for. A built-in model has none,
    although one of other trials may. A module is looked for in the working folder, the project's, then on
    Python's path; there an installed distribution is a library, of which no file is listed. Raises
    UsageError for files that do not exist.
    """
    explicit = tuple(values["model_files"])
    names, module = {path.name for path in explicit}, module_of(values["architecture"])
    if not module:
        return ()
    top = PurePath(module).name if module.endswith(".py") else module.partition(".")[0]
    code = () if names & {top, f"{top}.py"} else _with_imported(_module_path(module))
    return tuple(dict.fromkeys((*explicit, *code, *_argument_paths(values["arguments"], names))))


def _module_path(module: str) -> Path | None:
    """The file or folder of a module; None for one of a library, and for one that is nowhere."""
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise UsageError(f"train.architecture names {module}, but there is no such file in {Path.cwd()}")
        return Path(module)
    top = module.partition(".")[0]
    return _beside(Path(), top) or _on_python_path(top)


def _beside(folder: Path, name: str) -> Path | None:
    """The package or module of a name in a folder, as Python would choose."""
    package, file = folder / name, folder / f"{name}.py"
    if name == "eopipe":
        return None
    if (package / "__init__.py").is_file():
        return package
    return file if file.is_file() else package if any(package.glob("*.py")) else None


def _on_python_path(name: str) -> Path | None:
    if name in sys.stdlib_module_names or name in _distributions():
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if folders:
        return Path(folders[0])
    origin = (spec and spec.origin) or ""
    return Path(origin) if origin.endswith(".py") else None


def _with_imported(start: Path | None) -> tuple[Path, ...]:
    """A module or package, and those beside it that it imports, directly or not."""
    pending, items = [start] if start else [], list[Path]()
    while pending:
        item = pending.pop()
        if item not in items:
            items.append(item)
            siblings = (_beside(item.parent, name) for name in sorted(imported_names([item])))
            pending += [path for path in siblings if path]
    return tuple(sorted(items))


def imported_names(items: Iterable[Path]) -> set[str]:
    """First parts of the names of all modules that some modules and packages import, but for Python's own."""
    names: set[str] = set()
    for item in items:
        for path in item.rglob("*.py") if item.is_dir() else [item]:
            names |= set(_imports(path, is_inside=item.is_dir()))
    return names - sys.stdlib_module_names


def _imports(path: Path, is_inside: bool) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        # The import of the model reports it with its line.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not (node.level and is_inside):
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]


def _argument_paths(arguments: Sequence[str], listed: set[str]) -> Iterator[Path]:
    """Existing files and folders among the arguments, except for the listed names.

    Raises UsageError for what must be a file and does not exist.
    """
    for name, value in read_arguments(tuple(arguments)).items():
        for path in map(Path, _strings(value)):
            if path.name in listed:
                continue
            if path.exists() and not Path.cwd().is_relative_to(path.resolve()):
                yield path
            elif path.suffix in FILE_ENDINGS:
                raise UsageError(f"train.arguments has {name}={path}, but there is no such file in {Path.cwd()}")


def _strings(value: Any) -> Iterator[str]:
    """The strings in a value that look like paths: a name without ending and slash is a word, as `resnet18`."""
    if isinstance(value, str):
        if "://" not in value and ("/" in value or PurePath(value).suffix):
            yield value
    elif isinstance(value, list | dict):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _strings(element)


def _replaced(value: Any, change: Callable[[str], str]) -> Any:
    """A value with its strings that look like paths changed."""
    if isinstance(value, list):
        return [_replaced(element, change) for element in value]
    if isinstance(value, dict):
        return {key: _replaced(element, change) for key, element in value.items()}
    return change(value) if isinstance(value, str) and [*_strings(value)] else value


def read_arguments(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Arguments as `size=tiny` or `layers=[2,2]` by name; a value that is not JSON is text."""
    malformed = [text for text in arguments if not text.partition("=")[0].isidentifier() or "=" not in text]
    if malformed:
        raise UsageError(f"train.arguments {', '.join(malformed)} must be of the form name=value")
    return {name: _parse_value(text) for name, _, text in (argument.partition("=") for argument in arguments)}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def list_files(items: Sequence[Path], architecture: str, arguments: tuple[str, ...]) -> tuple[ModelFile, ...]:
    """Every file of the modules, packages, files and folders of a model, by its path in a model folder.

    Raises UsageError for two items of one name.
    """
    named = {PurePath(text).name for value in read_arguments(arguments).values() for text in _strings(value)}
    repeated = [name for name, count in Counter(item.name for item in items).items() if count > 1]
    if repeated:
        raise UsageError(f"train.model_files has several files {', '.join(repeated)}; rename all but one of each")
    files = []
    for item in sorted(items, key=lambda path: path.name):
        is_argument = item.name in named and item.name != PurePath(module_of(architecture)).name
        root = PurePosixPath(FILES if is_argument else CODE, item.name)
        paths = [(root / path.relative_to(item).as_posix(), path) for path in visible_files(item)]
        for name, path in paths if item.is_dir() else [(root, item)]:
            files.append(ModelFile(str(name), sha256(path), path.absolute()))
    return tuple(files)


def portable_names(
    architecture: str, arguments: tuple[str, ...], files: Iterable[ModelFile]
) -> tuple[str, tuple[str, ...]]:
    """Architecture and arguments with the bare names of files, so that they are the same on every machine."""
    names = {path.parts[1] for path in (PurePosixPath(file.name) for file in files) if path.parts[0] == FILES}
    return _bare_name(architecture), tuple(_portable(text, names) for text in arguments)


def _bare_name(architecture: str) -> str:
    """The name of an architecture without the folder of its file."""
    module, _, attribute = architecture.partition(":")
    return f"{PurePath(module).name}:{attribute}" if module.endswith(".py") else architecture


def is_permitted(architecture: str, names: Iterable[str | None]) -> bool:
    """Whether a model of this name may be built: a built-in one always, a custom one if it is among the names.

    `net:Net` and `net.py:Net` name the same class.
    """
    return not module_of(architecture) or _class_name(architecture) in {_class_name(name) for name in names if name}


def _class_name(architecture: str) -> str:
    module, _, attribute = _bare_name(architecture).partition(":")
    return f"{module.removesuffix('.py')}:{attribute}"


def permission_message(owner: str, architecture: str, *, in_python: bool = False) -> str:
    """Why the code of a custom model does not run, and what to type, or to pass in Python, so that it does."""
    cure = f"allow_code={architecture!r}" if in_python else f"--allow-code {shlex.quote(architecture)}"
    return (
        f"{owner} names code to run, {architecture}, and code from others can do anything; read it, and if you trust "
        f"it and its arguments add {cure}"
    )


def hidden_library(architecture: str, files: Iterable[ModelFile]) -> str:
    """A sentence about a model whose own code has the name of a library, so that permission would be for another.

    Empty for any other model.
    """
    top = module_of(architecture).partition(".")[0]
    if (
        not any(is_code(file) for file in files)
        or not top
        or (top not in sys.stdlib_module_names and top not in _distributions())
    ):
        return ""
    return f"the code of this model has the name of an installed library, {top}; rename it and train the model again"


def _portable(argument: str, names: set[str]) -> str:
    name, _, text = argument.partition("=")
    value = _parse_value(text)
    changed = _replaced(value, lambda path: _bare(PurePath(path)) if PurePath(path).name in names else path)
    return argument if changed == value else f"{name}={changed if isinstance(changed, str) else json.dumps(changed)}"


def _bare(path: PurePath) -> str:
    """The name of a file or folder as an argument that still looks like a path."""
    return path.name if path.suffix else f"./{path.name}"


def resolved_arguments(arguments: tuple[str, ...], files: Iterable[ModelFile]) -> dict[str, Any]:
    """Arguments by name, with the paths of the copies where they name files. Raises IntegrityError for another one."""
    paths: dict[str, str] = {}
    for file in files:
        folder, name, *rest = PurePosixPath(file.name).parts
        if folder == FILES:
            file.check()
            paths[name] = str(file.path.parents[len(rest) - 1] if rest else file.path)
    return {
        name: _replaced(value, lambda text: paths.get(PurePath(text).name, text))
        for name, value in read_arguments(arguments).items()
    }


def copy_files(files: Iterable[ModelFile], folder: Path) -> tuple[ModelFile, ...]:
    """Copy the files of a model to their paths in a folder; return them there.

    Raises IntegrityError for a file that has changed since it was listed.
    """
    copies = []
    for file in files:
        copy = ModelFile(file.name, file.sha256, (folder / file.name).absolute())
        copy.path.parent.mkdir(parents=True, exist_ok=True)
        copy.path.write_bytes(file.path.read_bytes())
        copy.check()
        copies.append(copy)
    return tuple(copies)


def libraries(architecture: str, items: Sequence[Path]) -> dict[str, str]:
    """Name and version of the installed distributions that a custom model comes from or imports.

    With those among their requirements that need torch, as timm of segmentation-models-pytorch: they have layers too.
    """
    module = module_of(architecture)
    if not module:
        return {}
    code = [item for item in items if item.is_dir() or item.suffix == ".py"]
    names = imported_names(code) | {module.partition(".")[0]}
    owners = {owner for name in names for owner in _distributions().get(name, ())}
    needed = {name for owner in owners for name in _requirements(owner) if "torch" in _requirements(name)}
    installed = {name: installed_version(name) for name in sorted(owners | needed)}
    return {name: number for name, number in installed.items() if number and name not in ALWAYS_RECORDED}


@cache
def _distributions() -> Mapping[str, list[str]]:
    """The distributions of each module at top level."""
    return packages_distributions()


def _requirements(distribution: str) -> list[str]:
    """Names of the distributions that a distribution needs, without its extras; empty if it is not installed."""
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        return []
    matches = (re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line)
    return [match[0] for match in matches if match]


def installed_version(distribution: str) -> str:
    """The installed version of a distribution, empty if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
