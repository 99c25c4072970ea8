"""Names in the rules: Snakemake looks an input function up when a job needs it, minutes into a run."""

import ast
import builtins
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

from snakemake.parser import parse
from snakemake.sourcecache import LocalSourceFile

WORKFLOW = Path(__file__).parents[2] / "workflow"
RULE_FILES = [WORKFLOW / "Snakefile", *sorted((WORKFLOW / "rules").glob("*.smk"))]
# What Snakemake gives to each file.
OF_SNAKEMAKE = {"workflow", "config", "rules", "checkpoints", "shell", "subpath", "unpack"}


def compiled(path: Path) -> ast.Module:
    """The Python that Snakemake runs for a file."""
    sources = SimpleNamespace(open=lambda source: StringIO(path.read_text()))
    return ast.parse(parse(LocalSourceFile(str(path)), SimpleNamespace(sourcecache=sources), {})[0])


def used(tree: ast.Module) -> set[str]:
    """The names that a file looks up."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def bound(tree: ast.Module) -> set[str]:
    """The names that a file assigns, defines, imports or has as arguments."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                names.add(name)
            case ast.alias(name=name, asname=alias):
                names.add(alias or name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
    return names


def unknown_names(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The names of each file that no file binds, nor Python or Snakemake."""
    known = set().union(*map(bound, trees.values()), dir(builtins), OF_SNAKEMAKE)
    return {name: sorted(used(tree) - known) for name, tree in trees.items() if used(tree) - known}


def test_every_name_in_the_rules_is_bound() -> None:
    assert unknown_names({path.name: compiled(path) for path in RULE_FILES}) == {}


def test_a_name_that_no_rule_file_binds_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "maps.smk"
    path.write_text('rule predict:\n    input:\n        tiles=tiles_of_month,\n    shell:\n        "true"\n')
    assert unknown_names({"maps.smk": compiled(path)}) == {"maps.smk": ["tiles_of_month"]}
