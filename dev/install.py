"""`python dev/install.py INTERPRETER ARGUMENTS…`: what `INTERPRETER -m pip install ARGUMENTS…` does, by uv.

uv needs a seventh of the time, and reads no configuration of pip: the indexes, links, constraints and the certificate
of that are passed on. Where there is no uv or it ends with an error, pip installs. It needs the standard library only,
since it makes the environment that everything else is in.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

UV = Path(__file__).parents[1] / ".venv/uv/bin/uv"
# pip's settings, the variables of uv that say the same, and what is between the values of one. No options, since
# an index may have a password.
VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", ""),
}


def pip_settings(environment: Mapping[str, str] = os.environ) -> dict[str, list[str]]:
    """The values of each setting of pip, from its files and variables."""
    line = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(line, env=dict(environment), capture_output=True, text=True, check=True).stdout
    settings: dict[str, list[str]] = {}
    # A variable comes first, then the section of the command, and the first that says something holds.
    for row in sorted(listed.splitlines(), key=lambda row: (not row.startswith(":env:"), row.startswith("global."))):
        key, _, value = row.partition("=")
        section, _, name = key.rpartition(".")
        if section in (":env:", "install", "global"):
            settings.setdefault(name, ast.literal_eval(value).split())
    return settings


def uv_variables(settings: Mapping[str, list[str]]) -> dict[str, str]:
    """The variables of `uv pip install` that say the same; pip takes the best version of all indexes."""
    variables = {name: between.join(settings[key]) for key, (name, between) in VARIABLES.items() if key in settings}
    return {"UV_INDEX_STRATEGY": "unsafe-best-match"} | variables


def install(interpreter: str, arguments: list[str]) -> int:
    """Install by uv, or else by pip; the exit code."""
    line = [str(UV), "pip", "install", "--quiet", "--python", interpreter, *arguments]
    try:
        done = subprocess.run(line, env=os.environ | uv_variables(pip_settings()), check=False)
        if done.returncode == 0:
            return 0
        print(f"uv ended with exit code {done.returncode}: pip installs", file=sys.stderr)
    except OSError as error:
        print(f"uv does not start ({error}): pip installs", file=sys.stderr)
    pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.run([*pip, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(install(sys.argv[1], sys.argv[2:]))
