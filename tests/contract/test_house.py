"""The structure of the package: sizes, names, imports, layers, packages that may open sockets, rules."""

import ast
import json
import re
import subprocess
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import lines
import pytest

from dev import quick
from eopipe.contract import STAGES, stage
from eopipe.tasks import TASKS

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "eopipe").rglob("*.py"))
SHIPPED_WITH = ("dev", "benchmarks", "sample", "snakemake_report_plugin_eopipe")
CODE = [*PACKAGE, *(path for name in SHIPPED_WITH for path in sorted((ROOT / name).rglob("*.py")))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RULES = [ROOT / "workflow/Snakefile", *sorted((ROOT / "workflow/rules").glob("*.smk"))]
LARGEST_FUNCTION, LARGEST_FILE = 50, 400
LARGEST_RULE, LAMBDAS_PER_RULE, LARGEST_RULE_FILE_PYTHON = 24, 1.2, 80
# Rules that only name targets.
TARGETS = {"all", "fetched"}
TESTS_PER_CODE = 0.8
# Names that only their right-hand side explains: on a later line they say nothing.
UNTELLING = {
    *("told", "found", "made", "seen", "there", "mine", "one", "wrong", "room", "given", "kept", "wanted", "asked"),
    *("said", "have", "had", "held", "gone", "taken", "got", "what", "where", "here", "how", "who", "whose", "many"),
    *("much", "odd", "theirs", "ours", "own", "lies", "thing", "things", "stuff", "dealt", "shown"),
}
VAGUE = {"utils", "util", "helpers", "common", "misc", "base"}
# The only packages that open sockets, by the modules with which they do, and that read variables of a scheduler.
SOCKETS = {name: {"fetch", "stac", "launch"} for name in ("requests", "urllib3", "socket")} | {
    "obstore": {"fetch"},
    "pystac_client": {"stac"},
    "mlflow": {"telemetry"},
    "prometheus_client": {"telemetry"},
    # Waits while it queries Slurm; stores of zarr are asynchronous.
    "asyncio": {"clusters", "fetch"},
    **{name: set() for name in ("http", "urllib.request", "xmlrpc", "socketserver", "ssl", "ftplib", "smtplib")},
    **{name: set() for name in ("aiohttp", "httpx", "boto3", "fsspec", "s3fs", "gcsfs", "paramiko")},
}
SCHEDULERS = ("SLURM_", "SRUN_", "SBATCH_", "PBS_", "LSB_", "_CONDOR", "OMPI_", "PMI_", "PMIX_")
SCHEDULER_VARIABLES = {"launch", "clusters", "provenance"}
# torchrun gives them to its workers, and one module reads them.
WORLD = ROOT / "eopipe/launch/world.py"
WORLD_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(tree(path)))


def functions() -> dict[str, int]:
    """Lines of every function's body, without its docstring."""
    sizes = {}
    for path in PACKAGE:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first = min((n.lineno for n in body), default=node.end_lineno or 0)
                sizes[f"{path}:{node.lineno}"] = (node.end_lineno or first) - first + 1
    return sizes


def test_functions_and_files_stay_small() -> None:
    assert {name: size for name, size in functions().items() if size > LARGEST_FUNCTION} == {}
    sizes = {str(path): len(path.read_text().splitlines()) for path in PACKAGE}
    assert {name: size for name, size in sizes.items() if size > LARGEST_FILE} == {}


def test_the_package_is_within_its_budget_of_lines_and_of_questions_to_tasks() -> None:
    table = lines.budget()
    assert sum(lines.lines().values()) <= table["limit"], "\n".join(lines.changes())
    assert sum(lines.task_questions().values()) <= table["task_questions"], lines.task_questions()


def test_the_limit_of_lines_rises_only_in_a_commit_that_names_it() -> None:
    path = lines.FILE.relative_to(ROOT)
    commits = quick.git("log", "-20", "--format=%H", "--", str(path))
    limits = [json.loads("\n".join(quick.git("show", f"{commit}:{path}")))["limit"] for commit in commits]
    for commit, limit, before in zip(commits, limits, limits[1:], strict=False):
        message = "\n".join(quick.git("show", "--no-patch", "--format=%B", commit)).replace(",", "")
        assert limit <= before or str(limit) in message, commit


def test_no_task_is_compared_by_its_name() -> None:
    # What differs between tasks is a property or a method of the task.
    compared = [
        f"{path}:{node.lineno}"
        for path in PACKAGE
        for node in nodes(path)
        if isinstance(node, ast.Compare)
        and any(isinstance(part, ast.Constant) and part.value in TASKS for part in ast.walk(node))
    ]
    assert compared == []


def test_folders_stay_flat_and_names_say_something() -> None:
    paths = [path.relative_to(ROOT / "eopipe").with_suffix("") for path in PACKAGE]
    assert max(len(path.parts) for path in paths) <= 2
    assert not {part for path in paths for part in path.parts} & (VAGUE | UNTELLING)


def test_a_class_name_belongs_to_one_class() -> None:
    names = Counter(node.name for path in PACKAGE for node in nodes(path) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []


def bound_names(path: Path) -> Iterator[tuple[str, int]]:
    """Every name that a file binds, with its line."""
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name, node.lineno


def test_a_name_says_what_its_value_is() -> None:
    counts: dict[str, list[str]] = defaultdict(list)
    for path in [*CODE, *TESTS]:
        for name, line in bound_names(path):
            if name.strip("_") in UNTELLING:
                counts[str(path.relative_to(ROOT))].append(f"{name}:{line}")
    if counts:
        pytest.fail("\n".join(f"{path}: {', '.join(names)}" for path, names in counts.items()), pytrace=False)


def test_neither_modules_nor_packages_import_in_a_cycle() -> None:
    # Imports inside of functions and by `import_module` count too.
    graph = grimp.build_graph("eopipe", cache_dir=None)
    modules = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for path in PACKAGE:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        modules[name] |= imported_by_name(path) & modules.keys()
    packages: dict[str, set[str]] = defaultdict(set)
    for name, imported in modules.items():
        for other in imported:
            above, below = name.split(".")[1:2], other.split(".")[1:2]
            if above and below and above != below:
                packages[above[0]].add(below[0])
    for imports in (modules, packages):
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def imported_by_name(path: Path) -> set[str]:
    """What a file imports by `import_module("name")`."""
    calls = [node for node in nodes(path) if isinstance(node, ast.Call) and node.args]
    functions_called = [(ast.unparse(call.func).rpartition(".")[2], call.args[0]) for call in calls]
    return {
        str(argument.value)
        for function, argument in functions_called
        if function in ("import_module", "__import__") and isinstance(argument, ast.Constant)
    }


def rules() -> dict[str, list[str]]:
    """The lines of every rule that are not blank."""
    lines: dict[str, list[str]] = {}
    for path in RULES:
        name = ""
        for line in path.read_text().splitlines():
            if start := re.match(r"(?:use rule \w+ as|rule|checkpoint) (\w+)(?: with)?:", line):
                name = start[1]
            elif line and not line[0].isspace():
                name = ""
            if name and line.strip():
                lines.setdefault(name, []).append(line)
    return lines


# Rules of folds, trials and parts of maps: those of the model with other files.
DERIVED = {name for name, lines in rules().items() if lines[0].startswith("use rule")}


# Rules of a stage that others have too, with the option that differs.
REDUCERS = {"promote": "choose --reducer halving", "combine": "choose --reducer mean"}


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_a_derived_rule_changes_files_and_not_the_command(name: str) -> None:
    lines = rules()[name]
    base = re.match(r"use rule (\w+) as", lines[0])
    assert base
    assert name in (f"{base[1]}_fold", f"{base[1]}_part", f"{base[1]}_trial", f"{base[1]}_member", f"{base[1]}_rung")
    directives = {line.strip() for line in lines[1:] if re.fullmatch(r"    \w+:", line)}
    assert {"output:", "log:", "benchmark:"} <= directives
    assert not directives & {"shell:", "script:", "run:", "conda:", "threads:"}


@pytest.mark.parametrize("name", sorted(set(rules()) - TARGETS - DERIVED))
def test_a_rule_is_thin_and_calls_the_command_line(name: str) -> None:
    lines = rules()[name]
    assert len(lines) <= LARGEST_RULE
    text = "\n".join(lines)
    assert re.search(rf"""["']exec eopipe {REDUCERS.get(name, name)} """, text)
    for word in ("log:", "benchmark:", "resources:", "mem_mb", "runtime"):
        assert word in text
    for word in ("script:", "run:", "retries:", "slurm", "partition"):
        assert word not in text
    assert re.match(r'\s+"[A-Z].*\."', lines[1]), "a rule begins with a sentence"


@pytest.mark.parametrize("name", sorted(set(rules()) - TARGETS - DERIVED))
def test_every_path_reaches_the_shell_quoted(name: str) -> None:
    shell = "\n".join(rules()[name]).partition("shell:")[2]
    for field in re.findall(r"\{([^}]*)\}", shell):
        quoted_before = field in ("params.options", "params.catalog", "params.scene", "params.more", "resources.knobs")
        assert field.endswith(":q") or quoted_before, field


def test_rules_hold_few_lambdas() -> None:
    names = set(rules()) - TARGETS
    lambdas = sum(path.read_text().count("lambda") for path in RULES if path.name != "common.smk")
    assert lambdas <= LAMBDAS_PER_RULE * len(names)


def test_the_only_python_of_the_workflow_is_short() -> None:
    lines = (ROOT / "workflow/rules/common.smk").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= LARGEST_RULE_FILE_PYTHON


def test_there_is_no_default_profile() -> None:
    # It would load by itself and override the other profiles key by key.
    assert not (ROOT / "profiles/default").exists()


def names_imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, and the packages that they are in."""
    names = imported_by_name(path)
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names]
    return {".".join(part[:depth]) for part in parts for depth in range(1, len(part) + 1)}


def environment_names(path: Path) -> set[str]:
    """Every string of a file that looks like the name of an environment variable."""
    texts = [n.value for n in nodes(path) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return {text for text in texts if re.fullmatch(r"_?[A-Z][A-Z0-9]+(_[A-Z0-9]+)*_?", text)}


def test_sockets_scheduler_and_rank_are_used_in_their_packages_only() -> None:
    used = []
    for path in PACKAGE:
        package, variables = path.parent.name, environment_names(path)
        names = {name for name in names_imported(path) & SOCKETS.keys() if package not in SOCKETS[name]}
        if package not in SCHEDULER_VARIABLES:
            names |= {name for name in variables if name.startswith(SCHEDULERS)}
        names |= variables & WORLD_VARIABLES if path != WORLD else set()
        used += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names)]
    assert used == []


# Modules that run code when they read a file, with all that is in them.
UNPICKLING = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle"}
# Functions and classes that evaluate code, start a shell, or read files in formats that can hold code.
EVALUATING = {
    *("eval", "exec", "builtins.eval", "builtins.exec", "os.system", "os.popen"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "torch.load", "pandas.read_pickle"),
    *(f"yaml.{name}" for name in ("load", "load_all", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all")),
    *(f"yaml.{name}" for name in ("Loader", "CLoader", "UnsafeLoader", "FullLoader", "CUnsafeLoader", "CFullLoader")),
}
# Arguments that allow it, with the only value that they may have.
ALLOWING = {"allow_pickle": "False", "shell": "False", "weights_only": "True"}


def full_names(path: Path) -> Iterator[tuple[str, int]]:
    """What a file imports, and what it uses of that or of the built-in functions: the full name, with its line."""
    origins = {"eval": "eval", "exec": "exec"}
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                # `import a.b` binds a.
                origin = alias.name if alias.asname else alias.name.partition(".")[0]
                origins[alias.asname or origin] = f"{prefix}{origin}"
                yield f"{prefix}{alias.name}", node.lineno
    for node in nodes(path):
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            if first in origins:
                yield ".".join([origins[first], *rest]), node.lineno
    yield from ((name, 0) for name in imported_by_name(path))


def unsafe_lines(path: Path) -> list[str]:
    """What in a file unpickles, evaluates or starts a shell, with its line."""
    names = set(full_names(path))
    unsafe = {(line, name) for name, line in names if name in EVALUATING or name.partition(".")[0] in UNPICKLING}
    for node in nodes(path):
        if isinstance(node, ast.keyword) and node.arg in ALLOWING and ast.unparse(node.value) != ALLOWING[node.arg]:
            unsafe.add((node.value.lineno, f"{node.arg}={ast.unparse(node.value)}"))
    return [f"{line}: {name}" for line, name in sorted(unsafe)]


def test_nothing_is_unpickled_or_evaluated() -> None:
    assert [f"{path.relative_to(ROOT)}:{line}" for path in PACKAGE for line in unsafe_lines(path)] == []


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle", "import pickle as safe", "from pickle import loads", "import marshal", "import shelve"),
        *("from dill import load", "import cloudpickle", "import joblib; joblib.load(p)", "import_module('pickle')"),
        *("import yaml; yaml.load(text)", "import yaml; yaml.unsafe_load(text)", "from yaml import unsafe_load as f"),
        *("import yaml; read = yaml.full_load", "import yaml; yaml.compose(text, Loader=yaml.UnsafeLoader)"),
        *("import torch; torch.load(p, weights_only=False)", "from torch import load", "import torch as t; t.load(p)"),
        *("import torch.nn; torch.load(path)", "read(path, weights_only=False)", "read(path, allow_pickle=allowed)"),
        *("import numpy as np; np.load(path, allow_pickle=True)", "import builtins; builtins.eval(text)"),
        *("eval(text)", "exec(text)", "run = exec", "import os; os.system(text)", "from os import popen"),
        *("import subprocess; subprocess.run(text, shell=True)", "from subprocess import getoutput"),
    ],
)
def test_a_line_that_unpickles_evaluates_or_starts_a_shell_is_noticed(tmp_path: Path, line: str) -> None:
    (tmp_path / "planted.py").write_text(f"def planted():\n    {line}\n")
    assert unsafe_lines(tmp_path / "planted.py") != []


@pytest.mark.parametrize(
    "line",
    [
        *("print('import pickle, eval(text)')", "model.eval()", "pickle = first(folder); print(pickle.name)"),
        *("import yaml; yaml.safe_load(text)", "import yaml; yaml.compose(text, Loader=yaml.SafeLoader)"),
        *("import re; re.compile(text)", "import ast; ast.literal_eval(text)", "import json; json.load(file)"),
        *("import numpy as np; np.load(p, allow_pickle=False)", "import subprocess; subprocess.run([a], shell=False)"),
    ],
)
def test_a_line_that_only_looks_like_that_is_not(tmp_path: Path, line: str) -> None:
    (tmp_path / "planted.py").write_text(f"def planted():\n    {line}\n")
    assert unsafe_lines(tmp_path / "planted.py") == []


# What writes a table that a spreadsheet opens; `write_csv` is the only one, since it knows what is executed there.
TABLE_WRITERS = {"csv.writer", "csv.DictWriter", "polars.DataFrame", "pandas.DataFrame", "pyarrow.csv", "numpy.savetxt"}
TABLES = ROOT / "eopipe/text_table.py"


def table_writers(path: Path) -> set[str]:
    return {name for name, _ in full_names(path)} & TABLE_WRITERS


def test_tables_have_one_writer() -> None:
    assert {path: names for path in PACKAGE if (names := table_writers(path))} == {TABLES: {"csv.writer"}}


@pytest.mark.parametrize(
    ("line", "is_writer"),
    [
        ("import csv; csv.writer(f)", True),
        ("import csv as c; c.DictWriter(f, n)", True),
        ("from csv import writer as w", True),
        ("from pyarrow import csv", True),
        ("import pyarrow.csv", True),
        ("import numpy as np; np.savetxt(p, a)", True),
        ("import csv; csv.reader(f)", False),
        ("csv.writer(f)", False),
    ],
)
def test_a_writer_of_tables_is_noticed(tmp_path: Path, line: str, is_writer: bool) -> None:
    (tmp_path / "planted.py").write_text(f"def planted():\n    {line}\n")
    assert bool(table_writers(tmp_path / "planted.py")) == is_writer


def test_tests_keep_up_with_the_code() -> None:
    code = sum(len(path.read_text().splitlines()) for path in PACKAGE)
    tests = sum(len(path.read_text().splitlines()) for path in TESTS)
    assert tests >= TESTS_PER_CODE * code


def test_a_test_is_skipped_and_never_its_file() -> None:
    """Of a file that is skipped pytest finds no test by its name, which is an error: see `make test-lowest`."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [str(path) for path in files if re.search(r"(?m)^(\w+ = )?pytest\.importorskip", path.read_text())] == []


def test_recorded_durations_are_of_tests_that_exist() -> None:
    for name in quick.durations().tests:
        path, _, function = name.partition("::")
        assert function in {node.name for node in nodes(ROOT / path) if isinstance(node, ast.FunctionDef)}, name


def test_no_committed_text_names_a_path_of_this_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = [ROOT / name for name in listed if not name.endswith((".tif", ".png"))]
    home = re.compile(r"(?<![\w.])(?:" + "|".join(map(re.escape, {str(ROOT.parent), str(Path.home())})) + r")/")
    names = [path.name for path in texts if path.is_file() and home.search(path.read_text(errors="ignore"))]
    assert names == []


ARCHITECTURE = ROOT / "docs/architecture.md"


def test_no_run_record_of_a_test_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files", "*.run.json"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert listed.stdout == ""


def test_the_architecture_page_names_every_package_and_root_module() -> None:
    packages = {path.parent.name for path in PACKAGE if path.parent != ROOT / "eopipe"}
    modules = {path.name for path in PACKAGE if path.parent == ROOT / "eopipe" and not path.name.startswith("__")}
    rows = re.findall(r"^\| `([\w.]+)/?` \|", ARCHITECTURE.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(packages | modules)


def test_the_types_and_files_of_the_architecture_page_exist() -> None:
    page = ARCHITECTURE.read_text()
    classes: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE:
        name = path.name if path.parent == ROOT / "eopipe" else path.parent.name
        classes[name] |= {node.name for node in tree(path).body if isinstance(node, ast.ClassDef)}
    rows = re.findall(r"^\| `([\w.]+)/?` \|.*\| (.*)\|$", page, re.MULTILINE)
    assert [
        (name, kind) for name, cell in rows for kind in re.findall(r"`(\w+)`", cell) if kind not in classes[name]
    ] == []
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", page))
    assert sorted(named - set().union(*classes.values())) == []
    files = re.findall(r"`((?:\w+/)+\w+\.\w+)`", page)
    assert [name for name in files if not (ROOT / name).exists() and not (ROOT / "eopipe" / name).exists()] == []


def test_the_layers_of_the_architecture_page_are_those_of_the_linter() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in linter["contracts"] if contract["type"] == "layers")
    lines = re.findall(r"```\n(cli\n.*?)```", ARCHITECTURE.read_text(), re.DOTALL)[0].splitlines()
    assert [set(line.split(", ")) for line in lines] == [set(layer.split(" : ")) for layer in layers]


def test_the_terms_page_has_the_noun_of_every_port() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/terms.md").read_text().splitlines() if line.startswith("| ")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row[3])}
    ports = {port.name for name in STAGES for port in stage(name).ports}
    assert (sorted(ports - listed), sorted(listed - ports)) == ([], [])
