"""Fork processes that have loaded torch, eopipe and Snakemake already: `python server.py FOLDER`.

Listens on FOLDER/socket and puts `python`, `eopipe` and `snakemake` into FOLDER/bin, each of which is client.py. Each
forked process leads a session of its own, has the environment, folder, umask, niceness and streams of its client, and
sees the client's parent as its own.
"""

import atexit
import gc
import importlib
import io
import json
import os
import selectors
import shlex
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

# Loaded before the first fork; none of these starts a thread or computes anything when imported.
PRELOADED = (
    *("torch", "torch.distributed.run", "torch._dynamo"),
    *("snakemake.cli", "snakemake_executor_plugin_slurm", "snakemake_logger_plugin_rich", "rich.live", "yaml"),
    *("numpy", "zarr", "rasterio", "xarray", "pyproj", "shapely", "pystac", "pystac_client", "pyogrio"),
    *("scipy.ndimage", "sklearn.ensemble", "onnxruntime", "onnxscript", "rocrate.rocrate", "requests"),
)
ENTRY_POINTS = {"eopipe": "eopipe.cli", "snakemake": "snakemake.cli"}
CLIENT = Path(__file__).with_name("client.py")


def install(folder: Path) -> None:
    """Write the commands that lead to this server."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("python", "eopipe", "snakemake"):
        command = folder / "bin" / name
        words = (sys.executable, "-IS", CLIENT, sys.executable, folder / "socket")
        line = f'exec {shlex.join(map(str, words))} "$0" "$@"'
        command.write_text(f"#!/bin/sh\n{line}\n")
        command.chmod(0o755)


def serve(folder: Path) -> None:
    """Fork a process for each client, as long as the session is alive."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.listen(256)
    wake, woken = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(listening, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    children: dict[int, tuple[socket.socket, str]] = {}
    (folder / "pid").write_text(str(os.getpid()))
    (folder / "ready").touch()
    while alive(int((folder / "session").read_text())):
        for key, _ in selector.select(timeout=1):
            if key.fileobj is listening:
                connection, _ = listening.accept()
                open_ = (listening, wake, woken, *(client for client, _ in children.values()))
                pid, starter = fork(connection, folder, open_)
                children[pid] = connection, starter
                selector.register(connection, selectors.EVENT_READ, pid)
            elif key.fileobj is woken:
                woken.recv(4096)
                for pid, status, cpu_s in ended():
                    connection, starter = children.pop(pid)
                    record(starter, cpu_s=round(cpu_s, 2))
                    with connection, suppress(OSError, KeyError):
                        connection.sendall(status.to_bytes(4, "big", signed=True))
                        selector.unregister(connection)
            elif not pass_on(children[key.data][0], key.data):
                selector.unregister(key.fileobj)


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def record(starter: str, **values: Any) -> None:
    """Where durations are recorded, add a line to what is known of a test or fixture (tests/durations.py)."""
    if starter and (measured := os.environ.get("EOPIPE_DURATIONS")):
        with Path(measured, f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps({"starter": starter} | values) + "\n")


def ended() -> list[tuple[int, int, float]]:
    """The children that have ended: process, exit code or negative signal, processor seconds."""
    results = []
    with suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                break
            results.append((pid, os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime))
    return results


def pass_on(connection: socket.socket, pid: int) -> bool:
    """Pass the signals of a client on; False for a client that is gone, which takes its process with it."""
    with suppress(OSError):
        if numbers := connection.recv(64):
            for number in numbers:
                os.kill(pid, number)
            return True
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return False


def fork(connection: socket.socket, folder: Path, others: tuple[socket.socket, ...]) -> tuple[int, str]:
    """Fork the process that a client asks for; returns its number, and the test or fixture that started it."""
    request, streams = receive(connection)
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        return pid, request["environment"].get("EOPIPE_STARTER", "")
    try:
        for other in (connection, *others):
            other.close()
        become(request, streams, folder)
    except BaseException:  # noqa: BLE001 - nothing may return into the server
        traceback.print_exc()
    os._exit(1)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a client asks for, and its standard streams."""
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    size, body = int.from_bytes(head, "big"), b""
    while len(body) < size and (part := connection.recv(size - len(body))):
        body += part
    return json.loads(body), streams


def become(request: dict[str, Any], streams: list[int], folder: Path) -> NoReturn:
    """Turn this fork into the process that the client describes, and end with its exit code."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in request["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    unbuffered = bool(request["environment"].get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = text_stream(0, "r")
    sys.stdout = sys.__stdout__ = text_stream(1, "w", write_through=unbuffered, line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = text_stream(2, "w", errors="backslashreplace", line_buffering=True)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.nice(request["nice"] - os.nice(0))
    os.environ.clear()
    os.environ.update(request["environment"])
    paths = [path for path in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [*([] if request["environment"].get("PYTHONSAFEPATH") else [request["folder"]]), *paths]
    # What this process starts through the interpreter is forked too.
    sys.executable = str(folder / "bin/python")
    # Above the client stand the engines and launchers that the process asks about.
    os.getppid = lambda: request["parent"]
    run(request["module"], request["argv"])


def text_stream(number: int, mode: str, **options: Any) -> io.TextIOWrapper:
    """A standard stream as the interpreter opens it."""
    return io.TextIOWrapper(open(number, f"{mode}b", closefd=False), "utf-8", **options)


def run(module: str, argv: list[str]) -> NoReturn:
    """Run the entry point of a module as its command would."""
    entry = importlib.import_module(ENTRY_POINTS.get(module, module))
    sys.argv = [f"{module}.py" if module not in ENTRY_POINTS else module, *argv]
    code: object = 0
    try:
        code = entry.main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    record(os.environ.get("EOPIPE_STARTER", ""), modules=[name for name in sys.modules if name.startswith("eopipe.")])
    for output in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            output.flush()
    os._exit(int(code or 0))


def prepare(is_recorded: bool) -> None:
    """Compute what every process would compute again, and keep what is loaded out of the garbage collections of all."""
    with suppress(ImportError):
        # Snakemake looks for its plugins in all installed packages.
        importlib.import_module("snakemake.cli").get_argument_parser()
    if not is_recorded:
        with suppress(ImportError):
            importlib.import_module("eopipe.config").model()
    gc.collect()
    gc.freeze()


def main() -> None:
    """Load what is slow to load, then serve."""
    folder = Path(sys.argv[1])
    package = Path(__file__).parents[2] / "eopipe"
    modules = [path.relative_to(package.parent).with_suffix("") for path in sorted(package.rglob("*.py"))]
    names = [".".join(module.parts).removesuffix(".__init__") for module in modules if module.name != "__main__"]
    # Where durations are recorded each process loads the modules of eopipe that it needs, so that they can be listed.
    is_recorded = "EOPIPE_DURATIONS" in os.environ
    for name in (*PRELOADED, *([] if is_recorded else names)):
        # An optional package that is missing; or a module that is broken, which the process that needs it reports.
        with suppress(ImportError):
            importlib.import_module(name)
    prepare(is_recorded)
    install(folder)
    serve(folder)


if __name__ == "__main__":
    main()
