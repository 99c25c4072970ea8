"""Environments are installed by uv as pip would install them."""

import os
import sys
from pathlib import Path

import pytest

from dev.install import install, pip_settings, uv_variables


def test_what_pip_is_configured_to_do_reaches_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a.example/simple\nfind-links = /wheels /more\n"
        "constraint = pins.txt\ntimeout = 9\n"
        "[install]\nextra-index-url =\n  https://b.example/simple\n  https://c.example/simple\n"
        "[download]\nfind-links = /not-for-install\n"
    )
    variables = {"PIP_CONFIG_FILE": str(file), "PIP_CONSTRAINT": "others.txt", "PIP_CERT": "/ours.pem"}
    settings = pip_settings(os.environ | variables)
    assert uv_variables(settings) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_INDEX": "https://b.example/simple https://c.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_CONSTRAINT": "others.txt",
        "SSL_CERT_FILE": "/ours.pem",
    }


def test_where_uv_fails_pip_installs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # A package without what pip needs to build it: neither can, and both say why.
    assert install(sys.executable, ["--no-deps", "--target", str(tmp_path / "to"), str(tmp_path)]) != 0
    printed = capfd.readouterr().err
    assert "pip installs" in printed
    assert printed.count(str(tmp_path)) >= 2 or "not installable" in printed
