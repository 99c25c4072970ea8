"""rocrate-validator without a network: `python tests/offline_rocrate.py CRATE [required|recommended]`.

The validator loads the JSON-LD context of RO-Crate 1.1 from the web. It is put into the validator's cache before,
built from the context in the package rocrate (CC0) with the differences of 1.1.
"""

import io
import json
import sys
import tempfile
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

CONTEXT = "https://w3id.org/ro/crate/1.1/context"
BIOSCHEMAS = "https://bioschemas.org/"
# Terms that are newer than 1.1, or have another meaning there.
LATER = ("buildInstructions", "creditText", "sha256")
EARLIER = {
    "ComputationalWorkflow": f"{BIOSCHEMAS}ComputationalWorkflow",
    "FormalParameter": f"{BIOSCHEMAS}FormalParameter",
    "input": f"{BIOSCHEMAS}ComputationalWorkflow#input",
    "output": f"{BIOSCHEMAS}ComputationalWorkflow#output",
}
# Requires an http URL as id of the workflow, which a file of the crate cannot have.
SKIPPED = ["process-run-crate-0.5_5.1"]
PROFILE = "provenance-run-crate"


def context() -> dict[str, Any]:
    """The JSON-LD context of RO-Crate 1.1."""
    terms = json.loads(files("rocrate").joinpath("data/ro-crate.jsonld").read_text())["@context"]
    return {"@context": {k: v for k, v in terms.items() if k not in LATER} | EARLIER}


def seed(cache: Path) -> Path:
    """Put the context into a cache of the validator; return the cache."""
    import requests
    from requests_cache import CachedSession
    from urllib3 import HTTPResponse

    class Local(requests.adapters.BaseAdapter):
        """Answers every request with the context."""

        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            body = io.BytesIO(json.dumps(context()).encode())
            headers = {"Content-Type": "application/ld+json"}
            response = HTTPResponse(body, status=200, headers=headers, preload_content=False)
            return requests.adapters.HTTPAdapter().build_response(request, response)

        def close(self) -> None:
            """Nothing is open."""

    with CachedSession(str(cache), backend="sqlite", expire_after=-1, allowable_methods=("GET",)) as session:
        session.mount("https://", Local())
        session.get(CONTEXT, headers={"Accept": "application/ld+json, application/json, */*;q=0.1"})
    return cache


def issues(crate: Path, cache: Path, severity: str = "REQUIRED", profile: str = PROFILE) -> list[str]:
    """The issues that the validator finds in a crate, each with the id of its check; no network is used."""
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings

    settings = ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier=profile,
        requirement_severity=Severity[severity],
        offline=True,
        cache_path=cache,
        skip_checks=SKIPPED,
    )
    with warnings.catch_warnings():
        # Warnings inside of the validator's libraries.
        warnings.simplefilter("ignore", DeprecationWarning)
        issues_found = services.validate(settings).get_issues()
    return [f"{i.check.identifier} {i.violatingEntity or ''} {i.message}" for i in issues_found]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        messages = issues(
            Path(sys.argv[1]), seed(Path(folder) / "cache"), *(severity.upper() for severity in sys.argv[2:3])
        )
    print("\n".join(messages) or "valid")
    sys.exit(bool(messages))
