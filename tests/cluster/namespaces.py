"""Network namespaces: each node has a name and an address of its own on a bridge."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from daemons import ClusterError, sh

BRIDGE, SUBNET = "eopipe-br", "10.231.7"


def possible() -> bool:
    """Whether this machine allows them."""
    try:
        sh("ip", "netns", "add", "eopipe-try")
        sh("ip", "netns", "del", "eopipe-try")
    except (ClusterError, OSError):
        return False
    return True


def address(node: int) -> str:
    """Address of a node."""
    return f"{SUBNET}.{10 + node}"


def up(nodes: int, host: str, hosts: Path) -> None:
    """Make the bridge and the namespaces, and write the hosts file of the nodes."""
    sh("ip", "link", "add", BRIDGE, "type", "bridge")
    sh("ip", "addr", "add", f"{SUBNET}.1/24", "dev", BRIDGE)
    sh("ip", "link", "set", BRIDGE, "up")
    lines = ["127.0.0.1 localhost", f"{SUBNET}.1 {host}"]
    for node in range(1, nodes + 1):
        name = _name(node)
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "link", "set", name, "master", BRIDGE, "up")
        sh("ip", "-n", name, "addr", "add", f"{address(node)}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        lines.append(f"{address(node)} node{node}")
    hosts.write_text("\n".join(lines) + "\n")


def inside(node: int, hosts: Path, private: Path) -> list[str]:
    """What to put before a command to run it on a node: its name, its hosts and a /tmp of its own.

    `ip netns exec` would remount /sys, and slurmd would not find its cgroups.
    """
    script = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /var/tmp && hostname "$3" && shift 3 && exec "$@"'
    enter = ["nsenter", f"--net=/run/netns/{_name(node)}", "unshare", "--uts", "--mount"]
    return [*enter, "sh", "-c", script, "sh", str(hosts), str(private), f"node{node}"]


def kill(node: int) -> None:
    """End all processes of a node at once, as a power cut does."""
    for pid in _pids(node):
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def down(nodes: int) -> None:
    """Remove all of it, and what still runs there."""
    for node in range(1, nodes + 1):
        kill(node)
        for command in (("ip", "netns", "del", _name(node)), ("ip", "link", "del", _name(node))):
            subprocess.run(command, capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def _pids(node: int) -> list[str]:
    command = ["ip", "netns", "pids", _name(node)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def _name(node: int) -> str:
    return f"eopipe{node}"
