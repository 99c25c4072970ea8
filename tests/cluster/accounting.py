"""Slurm's accounting: MariaDB and slurmdbd on loopback."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from daemons import ClusterError, sh, wait
from slurm_conf import ClusterLayout, slurmdbd_conf

DATABASE = (
    "create database if not exists slurm_acct_db;"
    "create user if not exists slurm@'127.0.0.1' identified by 'slurm';"
    "create user if not exists slurm@'localhost' identified by 'slurm';"
    "grant all on slurm_acct_db.* to slurm@'127.0.0.1'; grant all on slurm_acct_db.* to slurm@'localhost';"
)


def start(layout: ClusterLayout) -> None:
    """Start both, and create the account `eo` of root."""
    home, run = layout.root / "mysql", layout.root / "run"
    config = layout.root / "etc" / "slurmdbd.conf"
    config.write_text(slurmdbd_conf(layout))
    config.chmod(0o600)
    if not (home / "data").exists():
        home.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-defaults", "--user=root", "--skip-test-db", "--auth-root-authentication-method=socket"]
        sh("mariadb-install-db", *quiet, f"--datadir={home / 'data'}")
    arguments = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={home / 'data'}", f"--socket={home / 'sock'}"]
    arguments += [f"--pid-file={run / 'mariadbd.pid'}", "--bind-address=127.0.0.1", f"--port={layout.port + 3}"]
    arguments += ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    arguments += ["--innodb-lock-wait-timeout=900", f"--log-error={layout.root / 'log' / 'mariadbd.log'}"]
    no_streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["setsid", "--fork", *arguments], check=True, **no_streams)
    client = ["mariadb", "--no-defaults", "-uroot", f"--socket={home / 'sock'}"]
    wait(30, lambda: _works(*client, "-e", "select 1"), "MariaDB")
    sh(*client, "-e", DATABASE)
    # slurmdbd reads its configuration from the same folder.
    sh("slurmdbd", env=os.environ | {"SLURM_CONF": str(config.with_name("slurm.conf"))})
    wait(30, lambda: _works("sacctmgr", "-n", "show", "cluster"), "slurmdbd")
    for entity in (
        ("cluster", "eopipe"),
        ("account", "eo", "cluster=eopipe", "description=test", "organization=test"),
        ("user", "root", "account=eo", "adminlevel=admin"),
    ):
        with suppress(ClusterError):
            sh("sacctmgr", "-i", "add", *entity)


def files(root: Path) -> list[Path]:
    """The pid files of the daemons, in the order in which they must end."""
    return [root / "run" / "slurmdbd.pid", root / "run" / "mariadbd.pid"]


def _works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
