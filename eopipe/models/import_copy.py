"""Import a custom model from listed files with known digests, under a name of its own, without changing `sys.path`.

The modules become submodules of a package whose name follows from the files, so that two versions of one module can be
in a process. Their absolute imports of each other lead into that package. No file that is not listed is imported, no
byte code is read or written.
"""

import ast
import hashlib
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from eopipe.errors import MODEL_PACKAGE, IntegrityError, UsageError
from eopipe.models.model_files import CODE, ModelFile, is_code


def import_module_of(module: str, files: Sequence[ModelFile]) -> ModuleType:
    """The module of a custom model: from its files, or where it has none of its own, from a library.

    Raises what the module raises, IntegrityError for a file with another digest.
    """
    paths = {file.name.removeprefix(f"{CODE}/"): file for file in files if is_code(file)}
    if not paths:
        return importlib.import_module(module)
    text = "".join(f"{name} {file.sha256} {file.path}\n" for name, file in sorted(paths.items()))
    package = MODEL_PACKAGE + hashlib.sha256(text.encode()).hexdigest()[:16]
    if not any(isinstance(finder, CopyFinder) and finder.package == package for finder in sys.meta_path):
        sys.meta_path.insert(0, CopyFinder(package, paths))
    name = PurePosixPath(module).stem if module.endswith(".py") else module
    return importlib.import_module(f"{package}.{name}")


class CopyFinder(MetaPathFinder):
    """Finds the modules of one copy: `package.pkg.net` is the file `pkg/net.py`."""

    def __init__(self, package: str, files: dict[str, ModelFile]) -> None:
        self.package, self.files = package, files
        self.names = {name.partition("/")[0].removesuffix(".py") for name in files}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the signature is Python's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The specification of a module of the copy; None for any other."""
        if fullname == self.package:
            return ModuleSpec(fullname, None, is_package=True)
        if not fullname.startswith(f"{self.package}."):
            return None
        name = fullname.removeprefix(f"{self.package}.").replace(".", "/")
        for file in (self.files.get(f"{name}/__init__.py"), self.files.get(f"{name}.py")):
            if file:
                loader = CopyLoader(fullname, file, self)
                folder = [str(file.path.parent)] if file.path.name == "__init__.py" else None
                return spec_from_file_location(fullname, file.path, loader=loader, submodule_search_locations=folder)
        is_folder = any(other.startswith(f"{name}/") for other in self.files)
        return ModuleSpec(fullname, None, is_package=True) if is_folder else None


class CopyLoader(SourceFileLoader):
    """Compiles a module of a copy from source that has the listed digest."""

    def __init__(self, fullname: str, file: ModelFile, finder: CopyFinder) -> None:
        super().__init__(fullname, str(file.path))
        self.file, self.finder = file, finder

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        """The code of the file itself: byte code beside it would not be what the digest is of."""
        source = Path(self.path).read_bytes()
        if hashlib.sha256(source).hexdigest() != self.file.sha256:
            raise IntegrityError(
                f"{self.path} does not have the digest that is recorded for this file of the model; "
                "use the model as it was trained, or train it again"
            )
        name = self.file.name.removeprefix(f"{CODE}/")
        try:
            tree = LocalImports(self.finder).visit(ast.parse(source, self.path))
            return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise UsageError(f"{name} line {error.lineno}: {type(error).__name__}: {error.msg}") from error
        except ValueError as error:
            raise UsageError(f"{name} is not Python: {error}") from error


class LocalImports(ast.NodeTransformer):
    """Lets the modules of a copy import each other by the names that they have in the project's folder."""

    def __init__(self, finder: CopyFinder) -> None:
        self.finder = finder

    def _is_local(self, name: str) -> bool:
        return name.partition(".")[0] in self.finder.names

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """`import pkg.net` binds pkg; `import pkg.net as net` binds the module itself."""
        statements: list[Any] = []
        for alias in node.names:
            if not self._is_local(alias.name):
                statements.append(ast.Import([alias]))
                continue
            statements.append(ast.Import([ast.alias(f"{self.finder.package}.{alias.name}", alias.asname)]))
            if not alias.asname:
                top = ast.alias(alias.name.partition(".")[0])
                statements.append(ast.ImportFrom(self.finder.package, [top], 0))
        return [ast.copy_location(statement, node) for statement in statements]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """`from pkg import net`; relative imports stay."""
        if node.level == 0 and node.module and self._is_local(node.module):
            node.module = f"{self.finder.package}.{node.module}"
        return node
