"""Slurm's accounting: MariaDB and slurmdbd on loopback."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from daemons import ClusterError, sh, wait
from slurm_conf import Place, slurmdbd_conf

DATABASE = (
    "create database if not exists slurm_acct_db;"
    "create user if not exists slurm@'127.0.0.1' identified by 'slurm';"
    "create user if not exists slurm@'localhost' identified by 'slurm';"
    "grant all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on slurm_acct_db.* to slurm@'localhost';"
)


def start(place: Place) -> None:
    """Start both, and make the account `eo`, which root may use."""
    home, run = place.root / "mysql", place.root / "run"
    config = place.root / "etc" / "slurmdbd.conf"
    config.write_text(slurmdbd_conf(place))
    config.chmod(0o600)
    if not (home / "data").exists():
        home.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-defaults", "--user=root", "--skip-test-db", "--auth-root-authentication-method=socket"]
        sh("mariadb-install-db", *quiet, f"--datadir={home / 'data'}")
    words = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={home / 'data'}", f"--socket={home / 'sock'}"]
    words += [f"--pid-file={run / 'mariadbd.pid'}", "--bind-address=127.0.0.1", f"--port={place.port + 3}"]
    words += ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    words += ["--innodb-lock-wait-timeout=900", f"--log-error={place.root / 'log' / 'mariadbd.log'}"]
    away = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["setsid", "--fork", *words], check=True, **away)
    client = ["mariadb", "--no-defaults", "-uroot", f"--socket={home / 'sock'}"]
    wait(30, lambda: _works(*client, "-e", "select 1"), "MariaDB")
    sh(*client, "-e", DATABASE)
    # It looks for its configuration beside this one.
    sh("slurmdbd", env=os.environ | {"SLURM_CONF": str(config.with_name("slurm.conf"))})
    wait(30, lambda: _works("sacctmgr", "-n", "show", "cluster"), "slurmdbd")
    for what in (
        ("cluster", "eopipe"),
        ("account", "eo", "cluster=eopipe", "description=test", "organization=test"),
        ("user", "root", "account=eo", "adminlevel=admin"),
    ):
        with suppress(ClusterError):
            sh("sacctmgr", "-i", "add", *what)


def files(root: Path) -> list[Path]:
    """Where the daemons tell their process numbers, in the order in which they must end."""
    return [root / "run" / "slurmdbd.pid", root / "run" / "mariadbd.pid"]


def _works(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=30).returncode == 0
