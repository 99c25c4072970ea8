"""`python -m dev.validate_cwl`: validate the documents of cwl/, each once: a tool that workflows run, with one of them.

In one process, for each start of cwltool takes seconds.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

CWL = Path(__file__).parents[1] / "cwl"


def not_run_by_others(paths: Iterable[Path]) -> list[Path]:
    """The documents that no other runs: cwltool validates what a document runs with it."""
    texts = {path: path.read_text() for path in paths}
    run = {name for text in texts.values() for name in re.findall(r"^ *(?:- )?run: ([\w-]+\.cwl)$", text, re.MULTILINE)}
    return sorted(path for path in texts if path.name not in run)


def main() -> int:
    """Validate all documents; returns 1 where one is not valid."""
    from cwltool.main import main as cwltool

    codes = [cwltool(["--validate", "--quiet", str(path)]) for path in not_run_by_others(CWL.glob("*.cwl"))]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
