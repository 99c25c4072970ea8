"""One rule, one owner: what a single module does for all is used nowhere else, however it is imported."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of a library, what only one module may name: others ask that module.
OWNERS = {
    # Two CRS, and outlines in degrees: cut, closed and valid.
    "Transformer": "eopipe/tiles/globe.py",
    "make_valid": "eopipe/tiles/globe.py",
    # The CRS of a document.
    "to_authority": "eopipe/tiles/grid.py",
    # Files of strangers: one opener for each kind, with its bounds.
    "list_layers": "eopipe/labels/vector_files.py",
    "read_info": "eopipe/labels/vector_files.py",
    "safe_load": "eopipe/text_files.py",
    # A hint about a name that does not exist.
    "get_close_matches": "eopipe/errors.py",
}
# What reads a raster through a driver that it names, or has written it.
OPENERS = {
    "eopipe/tiles/geotiff.py",
    "eopipe/warp/open_raster.py",
    "eopipe/fetch/cog_window.py",
    "eopipe/fetch/range_reader.py",
    "eopipe/fetch/zarr_array.py",
    "eopipe/inference/map_files.py",
}


parse = cache(ast.parse)


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that code uses, imports or gives as a text, with its line."""
    documented = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Name):
            yield node.id, line
        elif isinstance(node, ast.Attribute):
            yield node.attr, line
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2], line
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value.rpartition(".")[2], line


def annotated(tree: ast.AST) -> set[int]:
    """The lines that only say a type: annotations, and what is imported for them."""
    lines = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            lines |= {part.lineno} if part is not None else set()
    return lines


def copies(source: str) -> list[str]:
    """The names of owned rules that a module uses."""
    tree = parse(source)
    ignored = annotated(tree)
    return sorted({name for name, line in named(tree) if name in OWNERS and line not in ignored})


MODULES = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in sorted((ROOT / "eopipe").rglob("*.py"))}


def test_a_rule_is_used_through_its_owner() -> None:
    used = [(name, rule) for name, source in MODULES.items() for rule in copies(source)]
    others = [f"{name}: {rule} is of {OWNERS[rule]}" for name, rule in used if OWNERS[rule] != name]
    assert others == []


def opened_rasters(source: str) -> list[ast.AST]:
    """The places that open a raster with rasterio, by whatever name it has there."""
    tree = parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    aliases = {
        alias.asname or alias.name.partition(".")[0]
        for node in imports
        for alias in node.names
        if isinstance(node, ast.Import) and alias.name.partition(".")[0] == "rasterio"
    }
    by_name = [
        node
        for node in imports
        if isinstance(node, ast.ImportFrom)
        and node.module == "rasterio"
        and {"open", "*"} & {a.name for a in node.names}
    ]
    by_attribute = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "open" and getattr(node.value, "id", "") in aliases
    ]
    return [*by_name, *by_attribute]


def test_a_raster_is_opened_as_the_format_that_it_should_be() -> None:
    others = [name for name, source in MODULES.items() if name not in OPENERS and opened_rasters(source)]
    assert others == [], "ask eopipe.tiles.geotiff.open_map"


@pytest.mark.parametrize(
    "copy", ["import rasterio\nrasterio.open(a)", "import rasterio as r\nf = r.open", "from rasterio import open as o"]
)
def test_an_opened_raster_is_found_however_it_comes(copy: str) -> None:
    assert opened_rasters(copy)
    assert not opened_rasters("import rasterio\nopen(a)")


# The beginning of a command in a text, up to a value.
OF_COMMAND = re.compile(
    r"(^|[`:]|such as|add|with) *(eopipe|ogr2ogr|gdal_translate|condor_\w+|tail -f|snakemake|cd) [^`]*$|--[a-z-]+ $"
)
# Values that no user and no stranger chooses.
OUR_NAMES = {"name", "stage", "command", "slug", "definition.name", "job.title", "job.stage", "__version__"}


def unquoted(source: str) -> list[str]:
    """Values in commands that a text gives to be pasted, which `shell_word` has not quoted."""
    values = []
    for text in (node for node in ast.walk(parse(source)) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
                continue
            assert isinstance(part, ast.FormattedValue)
            value = ast.unparse(part.value)
            is_path = not value.startswith("shell_word(") and value not in OUR_NAMES
            if is_path and OF_COMMAND.search(before) and "`" in before[-60:]:
                values.append(value)
            before += "VALUE"
    return values


def test_commands_that_are_printed_are_quoted() -> None:
    assert [(name, value) for name, source in MODULES.items() for value in unquoted(source)] == []


def test_an_unquoted_command_is_found() -> None:
    assert unquoted('f"`eopipe verify {folder}` lists them"') == ["folder"]
    assert unquoted('f"`ogr2ogr {shell_word(a)} {b.name}`"') == ["b.name"]


def test_each_owner_has_its_rule() -> None:
    for rule, owner in OWNERS.items():
        assert rule in copies((ROOT / owner).read_text(encoding="utf-8")), rule


@pytest.mark.parametrize(
    "copy",
    [
        "from pyproj import Transformer",
        "from pyproj import Transformer as Change",
        "import pyproj\nchange = pyproj.Transformer.from_crs(a, b)",
        "import pyproj as p\nchange = p.transformer.Transformer(a)",
        "def f():\n    from pyproj.transformer import Transformer\n    return Transformer.from_crs",
        "from pyproj import *\nchange = Transformer.from_crs(a, b)",
        "import shapely\nfixed = shapely.make_valid(area)",
        "from shapely import validation\nfixed = validation.make_valid(area)",
        "import shapely\nfix = getattr(shapely, 'make_valid')",
        "import importlib\nfix = importlib.import_module('shapely.validation').make_valid",
        "from operator import attrgetter\nfix = attrgetter('make_valid')(shapely)",
    ],
)
def test_a_copy_is_found_however_it_comes(copy: str) -> None:
    assert copies(copy)


def test_a_type_is_no_copy() -> None:
    assert not copies("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pyproj import Transformer")
    assert not copies('def f(change: "Transformer") -> "Transformer": ...')
