"""HTCondor's schedd, as far as Snakemake's executor asks: its log of events is read by HTCondor's own parser."""

import os
import subprocess
import threading
from datetime import datetime
from pathlib import Path

import htcondor2

END = "\t(1) Normal termination (return value {code})\n" + "".join(
    f"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  {kind} Usage\n"
    for kind in ("Run Remote", "Run Local", "Total Remote", "Total Local")
)


class Schedd:
    """Takes submit descriptions and runs them at once."""

    def submit(self, description: htcondor2.Submit) -> htcondor2.SubmitResult:
        pool = Path(os.environ["POOL"])
        with (pool / "requested").open("a") as requests:
            print(description["request_cpus"], description["request_memory"], file=requests)
        number = len((pool / "requested").read_text().splitlines())
        threading.Thread(target=self._run, args=(description, number)).start()
        return htcondor2.SubmitResult(number, 0, 1, None, None)

    def _run(self, description: htcondor2.Submit, number: int) -> None:
        log = Path(description["log"])
        _tell(log, number, 0, "Job submitted from host: <127.0.0.1:9618>")
        _tell(log, number, 1, "Job executing on host: <127.0.0.1:9618>")
        output = Path(description["output"].replace("$(ClusterId)", str(number)))
        with output.open("w") as file:
            line = [description["executable"], *description["arguments"].split()]
            code = subprocess.run(line, stdout=file, stderr=file, check=False).returncode
        _tell(log, number, 5, "Job terminated.\n" + END.format(code=code).rstrip())


def _tell(log: Path, number: int, kind: int, text: str) -> None:
    now = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    with log.open("a") as file:
        file.write(f"{kind:03} ({number:03}.000.000) {now} {text}\n...\n")


htcondor2.Schedd = Schedd
