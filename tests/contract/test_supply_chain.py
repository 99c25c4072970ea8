"""Locks with hashes, the SBOM and the audit of what an installation consists of; no test downloads anything."""

import json
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dev.supply_chain import BASE, CPU, CUDA, EXTRA, FINDING, ROOT, UNREACHABLE, constrained, main, pins

LOCKED = pins(BASE) | pins(CPU)
PINNED = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def closure() -> set[str]:
    """What eopipe with its extra needs, directly or not, as the installed packages state it."""
    names: set[str] = set()
    waiting = [("eopipe", EXTRA), ("setuptools", "")]
    while waiting:
        name, extra = waiting.pop()
        names.add(name)
        for text in requires(name) or ():
            need = Requirement(text)
            if need.marker and not any(need.marker.evaluate({"extra": value}) for value in ("", extra)):
                continue
            key = canonicalize_name(need.name)
            waiting += [(key, extra) for extra in ("", *need.extras) if key not in names]
    return names - {"eopipe"}


def test_the_locks_have_every_package_that_eopipe_needs_and_no_other() -> None:
    assert set(LOCKED) == closure()
    assert set(pins(CPU)) == {"torch"}


def test_a_lock_has_the_versions_of_the_constraints_each_with_a_hash() -> None:
    versions = {canonicalize_name(name): version for name, version in PINNED.items()}
    assert {name: pin.version for name, pin in pins(BASE).items()}.items() <= versions.items()
    assert pins(CPU)["torch"].version == f"{versions['torch']}+cpu"
    cuda = {name: pin.version for name, pin in pins(CUDA).items()}
    assert cuda["torch"] == versions["torch"]
    assert cuda.keys() & constrained() == {"torch"}
    assert all(name.startswith(("nvidia-", "cuda-", "triton")) for name in cuda.keys() - {"torch"})
    for path in (BASE, CPU, CUDA):
        text = path.read_text()
        assert len(re.findall(r"^[^\s#]", text, re.MULTILINE)) == len(pins(path)), "an entry without a hash"
        assert "//" not in text, "a lock names no server"


def test_pip_refuses_a_file_that_is_not_the_locked_one(tmp_path: Path) -> None:
    entry = next(text for text in re.split(r"^(?=\w)", BASE.read_text(), flags=re.MULTILINE) if "affine==" in text)
    (tmp_path / "one.lock").write_text(entry)
    about = f"affine-{PINNED['affine']}"
    with zipfile.ZipFile(tmp_path / f"{about}-py3-none-any.whl", "w") as wheel:
        for name, text in (
            ("METADATA", f"Metadata-Version: 2.1\nName: affine\nVersion: {PINNED['affine']}\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"{about}.dist-info/{name}", text)
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", tmp_path, "--no-deps"]
    install += ["--isolated", "--target", tmp_path / "packages"]
    refused = subprocess.run(
        [*install, "--require-hashes", "--requirement", tmp_path / "one.lock"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "packages").exists()
    subprocess.run([*install, "affine"], capture_output=True, check=True)


def test_the_sbom_is_valid_cyclonedx_with_versions_hashes_licences_and_dependencies(tmp_path: Path) -> None:
    target = tmp_path / "sbom.json"
    assert main(["sbom", "--out", str(target)]) == 0
    text = target.read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    packages = {canonicalize_name(entry["name"]): entry for entry in document["components"]}
    assert {name: entry["version"] for name, entry in packages.items()} == {n: pin.version for n, pin in LOCKED.items()}
    hashes = packages["torch"]["externalReferences"][0]["hashes"]
    assert [value["content"] for value in hashes] == list(pins(CPU)["torch"].hashes)
    unstated = [name for name, entry in packages.items() if not entry.get("licenses")]
    assert all(name.startswith(("conda-inject", "snakemake-")) for name in unstated), unstated
    dependencies = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    assert packages["torch"]["purl"] in dependencies["eopipe"]
    assert packages["numpy"]["purl"] in dependencies[packages["zarr"]["purl"]]
    document["components"][0].pop("name")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is not None


class Vulnerabilities(BaseHTTPRequestHandler):
    """A service in the protocol of OSV that knows one vulnerability, of zarr."""

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        package = query["package"]
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}]
        entry = {"id": "TEST-1", "summary": "a test", "affected": [{"package": package, "ranges": ranges}]}
        entry |= {"modified": "2026-01-01T00:00:00Z", "schema_version": "1.4.0"}
        answer = json.dumps({"vulns": [entry]} if package["name"] in self.server.affected else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def service(*affected: str) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Vulnerabilities) as server:
        server.affected = affected
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.exhaustive
def test_the_audit_names_what_is_vulnerable_and_says_when_nobody_answered(capfd: pytest.CaptureFixture[str]) -> None:
    with service("zarr") as url:
        assert main(["audit", "--osv-url", url]) == FINDING
        assert capfd.readouterr().err == f"zarr {PINNED['zarr']}: TEST-1, fixed in 99.1\n"
    assert main(["audit", "--osv-url", url]) == UNREACHABLE
    assert capfd.readouterr().err.startswith("nothing was audited, because pip-audit did not reach its service: ")
