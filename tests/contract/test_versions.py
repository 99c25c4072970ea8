"""The ranges of pyproject.toml are those that are tested: their floors and their pins are both installed in CI."""

import ast
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The peers of the benchmarks are run by hand; the one version of the executor for Slurm is pinned.
EXTRAS = [extra for extra in PROJECT["optional-dependencies"] if extra not in ("bench", "slurm", "test")]
RUNTIME = PROJECT["dependencies"]
REQUIREMENTS = [*RUNTIME, *(text for extra in EXTRAS for text in PROJECT["optional-dependencies"][extra])]
# Modules that have another name than their distribution.
DISTRIBUTIONS = {
    "google_crc32c": "google-crc32c",
    "odc": "odc-geo",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# Extras by the modules that they bring.
OPTIONAL = {"classad2": "snakemake-executor-plugin-htcondor", "mlflow": "mlflow-skinny"}
OPTIONAL |= {"prometheus_client": "prometheus-client"}


def pins(name: str) -> dict[str, Version]:
    rows = [line.split("==") for line in (ROOT / name).read_text().splitlines() if "==" in line and line[0] != "#"]
    return {canonicalize_name(package): Version(version) for package, version in rows}


def test_the_lowest_version_of_a_range_and_the_pinned_one_are_tested() -> None:
    lowest, pinned, untested = pins("constraints-lowest.txt"), pins("constraints.txt"), []
    for requirement in map(Requirement, REQUIREMENTS):
        name = canonicalize_name(requirement.name)
        (floor,) = [item.version for item in requirement.specifier if item.operator == ">="]
        if lowest[name] != Version(floor) or pinned[name] not in requirement.specifier:
            untested.append(str(requirement))
    assert untested == []


def test_dependencies_have_an_upper_bound() -> None:
    assert [text for text in RUNTIME if not any(item.operator == "<" for item in Requirement(text).specifier)] == []


def test_every_package_that_eopipe_imports_is_declared() -> None:
    declared = {
        "snakemake-executor-plugin-slurm",
        *(canonicalize_name(Requirement(text).name) for text in REQUIREMENTS),
    }
    for path in (ROOT / "eopipe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"eopipe"}:
                package = (DISTRIBUTIONS | OPTIONAL).get(name, canonicalize_name(name))
                assert package in declared, f"{path.relative_to(ROOT)} imports {name}"
