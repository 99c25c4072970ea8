"""`python -m dev.supply_chain lock|sbom|audit`: what an installation consists of, file by file.

`lock` writes the hashes of every file that a package index has of the pinned versions, `sbom` describes those packages
in CycloneDX, `audit` compares them with a database of known vulnerabilities.
"""

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "locks"
BASE, CPU, CUDA = (LOCKS / name for name in ("requirements.lock", "torch-cpu.lock", "torch-cuda.lock"))
# The extra that the container has, and what builds eopipe itself.
EXTRA, BUILD = "slurm", "setuptools"
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
HEADS = {
    BASE: "Everything but torch, for Linux and Python 3.11; written by `make lock` from constraints.txt.",
    CUDA: "torch of the Python Package Index and the CUDA libraries that it needs; written by `make lock`.",
}
# Exit codes as in eopipe: a finding, and a service that did not answer.
FINDING, UNREACHABLE = 4, 5


@dataclass(frozen=True)
class Pin:
    """A version of a package and the sha256 of each of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(path: Path) -> dict[str, Pin]:
    """The pins of a lock file by canonical name."""
    entries = re.findall(r"^([\w.-]+)==(\S+)((?:\s+\\?\s*--hash=sha256:[0-9a-f]{64})+)", path.read_text(), re.MULTILINE)
    return {
        canonicalize_name(name): Pin(name, version, tuple(re.findall(r"sha256:(\w+)", hashes)))
        for name, version, hashes in entries
    }


def constrained() -> set[str]:
    """The canonical names in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0]) for line in lines}


def lock() -> int:
    """Write requirements.lock and torch-cuda.lock; the one line of torch-cpu.lock is written by hand."""
    command = ["uv", "pip", "compile", "pyproject.toml", "-", "--extra", EXTRA, "--constraint", "constraints.txt"]
    command += [*PLATFORM, "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, input=BUILD, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return UNREACHABLE
    names = constrained() - {"torch"}
    texts: dict[Path, str] = {path: f"# {head}\n" for path, head in HEADS.items()}
    for entry in re.split(r"^(?=\w)", done.stdout, flags=re.MULTILINE)[1:]:
        texts[BASE if canonicalize_name(entry.partition("==")[0]) in names else CUDA] += entry
    for path, text in texts.items():
        path.write_text(text)
    return 0


def required(name: str, names: set[str]) -> Iterator[str]:
    """The packages out of some that an installed package requires on this platform."""
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        extras = ("", EXTRA) if name == "eopipe" else ("",)
        applies = not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        if applies and (other := canonicalize_name(requirement.name)) in names:
            yield other


def component(pin: Pin) -> Component:
    """A package with its files' hashes, and with licence and summary as its installed version states them."""
    metadata = importlib.metadata.metadata(pin.name)
    if metadata["Version"] != pin.version:
        sys.exit(
            f"{pin.name} {metadata['Version']} is installed, and the lock has {pin.version}: run `make .venv/tests`"
        )
    url = PackageURL("pypi", name=canonicalize_name(pin.name), version=pin.version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(str(url)),
        comment="the files of this version in the package index",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=value) for value in pin.hashes],
    )
    # A text of the older field is a name if it is short, and else the licence itself.
    expressions = metadata.get_all("License-Expression") or []
    licences = expressions + [text for text in metadata.get_all("License") or () if 0 < len(text) < 80]
    licences += [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if "License ::" in text]
    stated = next(iter(licences), "")
    return Component(
        name=pin.name,
        version=pin.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        purl=url,
        # A package need not have one, and `metadata["Summary"]` would be an error then.
        description=next(iter(metadata.get_all("Summary") or ()), None),
        licenses=[LicenseFactory().make_from_string(stated)] if stated else [],
        external_references=[files],
    )


def sbom(target: Path) -> int:
    """Write the CycloneDX document of the locked packages with torch for CPUs, from the environment that has them."""
    locked = pins(BASE) | pins(CPU)
    components = {name: component(pin) for name, pin in locked.items()}
    version = importlib.metadata.version("eopipe")
    root = Component(name="eopipe", version=version, type=ComponentType.APPLICATION, bom_ref="eopipe")
    # The same locks give the same serial number.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, BASE.read_text() + CPU.read_text())
    bom = Bom(components=components.values(), serial_number=serial)
    bom.metadata.component = root
    for name, above in [("eopipe", root), *components.items()]:
        bom.register_dependency(above, [components[other] for other in required(name, set(locked)) if other != name])
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    target.write_text(outputter.output_as_string(indent=2) + "\n")
    print(f"{target}: {len(components)} packages of eopipe {version} with licences, dependencies and hashes")
    return 0


def audit(osv_url: str | None) -> int:
    """Compare the locked versions with a database of known vulnerabilities; 4 if one has any, 5 without answer."""
    command = ["pip-audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    for path in (BASE, CUDA):
        command += ["--requirement", str(path)]
    if osv_url:
        command += ["--vulnerability-service", "osv", "--osv-url", osv_url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        print(f"nothing was audited, because pip-audit did not reach its service: {reason}", file=sys.stderr)
        return UNREACHABLE
    packages = json.loads(done.stdout)["dependencies"]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    affected = [package for package in packages if package.get("vulns")]
    for package in affected:
        for entry in package["vulns"]:
            versions = ", ".join(entry["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {entry['id']}, fixed in {versions}", file=sys.stderr)
    if skipped:
        names = ", ".join(skipped[:5]) + (" …" if skipped[5:] else "")
        count = f"{len(skipped)} of {len(packages)}"
        print(f"{count} packages were not audited, because the service does not know them: {names}", file=sys.stderr)
    if affected or skipped:
        return FINDING if affected else UNREACHABLE
    print(f"no known vulnerability in {len(packages)} packages")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Write the locks or the SBOM, or audit the locked versions."""
    parser = argparse.ArgumentParser(prog="python -m dev.supply_chain", description=main.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lock")
    commands.add_parser("sbom").add_argument("--out", type=Path, default=ROOT / "eopipe.cdx.json")
    auditing = commands.add_parser("audit")
    auditing.add_argument("--osv-url", help="an OSV service, instead of the Python Package Index's")
    arguments = parser.parse_args(argv)
    if arguments.command == "audit":
        return audit(arguments.osv_url)
    return lock() if arguments.command == "lock" else sbom(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
