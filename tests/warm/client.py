"""Stand-in for `python`, `eopipe` and `snakemake` in tests: lets the server beside it fork a process that has
loaded torch, eopipe and Snakemake already, instead of starting an interpreter that loads them again.

It hands over its arguments, environment, working folder and standard streams, passes signals on, and ends as the
forked process ends; when it is killed, that process is killed too. What the server does not know (another module, a
script, another eopipe), or any call without a server, is run by the interpreter itself.
"""

import os
import sys

MODULES = ("eopipe", "eopipe.training.worker", "eopipe.loader.worker_main", "snakemake")
INTERPRETER = sys.argv.pop(1)
SOCKET = sys.argv.pop(1)


def program(name: str, argv: list[str]) -> tuple[str, list[str]] | None:
    """The module that a command line runs and its arguments, if the server can fork it."""
    if name in ("eopipe", "snakemake"):
        return name, argv
    while argv[:1] in (["-u"], ["-P"]):
        argv = argv[1:]
    if argv[:1] == ["-m"] and argv[1:2] and argv[1] in MODULES:
        return argv[1], argv[2:]
    return None


def changes_what_is_loaded() -> bool:
    """Whether PYTHONPATH has another eopipe than the server's, or a start-up file."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return any(
        os.path.exists(f"{folder}/{name}")  # noqa: PTH110 - pathlib takes longer to import than all of this to run
        for folder in folders
        for name in ("sitecustomize.py", "eopipe/__init__.py")
    )


def main() -> None:
    name, argv = sys.argv[1].rpartition("/")[2], sys.argv[2:]
    call = program(name, argv)
    module = [] if name not in ("eopipe", "snakemake") else ["-m", name]
    if call is None or changes_what_is_loaded():
        os.execv(INTERPRETER, [INTERPRETER, *module, *argv])

    import ctypes
    import json
    import signal
    import socket

    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed launcher leaves no client behind
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(SOCKET)
    except OSError:
        os.execv(INTERPRETER, [INTERPRETER, *module, *argv])
    ignored = [n for n in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(n) == signal.SIG_IGN]
    mask = os.umask(0)
    os.umask(mask)
    request = {
        "module": call[0],
        "argv": call[1],
        "environment": os.environ | ({"PYTHONSAFEPATH": "1"} if "-P" in sys.argv[2:4] else {}),
        "folder": os.getcwd(),  # noqa: PTH109 - as above
        "umask": mask,
        "parent": parent,
        "ignored": ignored,
        "nice": os.nice(0),
    }

    def forward(number: int, _frame: object) -> None:
        connection.send(bytes([number]))

    for number in {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2} - set(ignored):
        signal.signal(number, forward)
    body = json.dumps(request).encode()
    socket.send_fds(connection, [len(body).to_bytes(8, "big")], [0, 1, 2])
    connection.sendall(body)
    # The forked process has the streams now; whoever waits for their end waits for it alone.
    for stream in (0, 1, 2):
        os.close(stream)
    status = int.from_bytes(connection.recv(4), "big", signed=True)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
