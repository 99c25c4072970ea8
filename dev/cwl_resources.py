"""What a job of each stage needs under CWL: the formulas of the rules, at one size, as CWL cannot measure its inputs.

A test holds these figures against `workflow/rules/*.smk`; larger runs override them (docs/cwl.md).
"""

from dataclasses import dataclass

# The size that the formulas are reckoned for: MB of inputs, scenes; and tries, of which the last asks for most.
MEGABYTES, SCENES, TRIES = 1000, 100, 3


@dataclass(frozen=True)
class Needs:
    """MB of memory and minutes at the first try; cores (a number, or the input that tells it), and cores that help."""

    memory: int
    minutes: int
    cores: int | str = 1
    most_cores: int | str = 1
    # A training goes on where it was stopped: no try needs more time.
    grows: bool = True

    @property
    def limit_s(self) -> int:
        """Seconds that the last try has."""
        return 60 * self.minutes * (TRIES if self.grows else 1)


PROCESSES, THREADS = "$(inputs.processes)", "$(inputs.threads)"
NEEDS = {
    "search": Needs(1000, 10),
    "fetch": Needs(1000, 60),
    "preprocess": Needs(1500, 20, most_cores=4),
    "composite": Needs(1512, 11),
    "label": Needs(1500, 20),
    "split": Needs(2000, 110),
    # The memory of two processes, as in the demo.
    "train": Needs(5048, 160, cores=PROCESSES, most_cores=PROCESSES, grows=False),
    "predict": Needs(3000, 120, cores=THREADS, most_cores=THREADS),
    "evaluate": Needs(3000, 40),
    "export": Needs(2500, 20),
    "report": Needs(2000, 30),
    "catalog": Needs(1000, 30),
    "crate": Needs(1000, 21),
}
