"""What a job of each stage needs under CWL: the formulas of the rules, at one size, as CWL cannot measure its inputs.

A test holds these figures against `workflow/rules/*.smk`; larger runs override them (docs/cwl.md).
"""

from dataclasses import dataclass

# The size that the formulas are reckoned for: MB of inputs, scenes; and tries, of which the last asks for most.
MEGABYTES, SCENES, TRIES = 1000, 100, 3


@dataclass(frozen=True)
class Needs:
    """Cores (a number, or the inputs that tell it), MB of memory and minutes at the first try."""

    memory: int
    minutes: int
    cores: int | str = 1
    # A training goes on where it was stopped: no try needs more time.
    grows: bool = True

    @property
    def limit_s(self) -> int:
        """Seconds that the last try has."""
        return 60 * self.minutes * (TRIES if self.grows else 1)


NEEDS = {
    "search": Needs(1000, 10),
    "fetch": Needs(1000, 60),
    "preprocess": Needs(1500, 20, cores=4),
    "composite": Needs(1512, 11),
    "label": Needs(1500, 20),
    "split": Needs(2000, 110),
    # The memory of two processes, as in the demo.
    "train": Needs(5048, 160, cores="$(inputs.processes)", grows=False),
    "predict": Needs(3000, 120, cores="$(inputs.threads)"),
    "evaluate": Needs(3000, 40),
    "export": Needs(2500, 20),
    "report": Needs(2000, 30),
    "catalog": Needs(1000, 30),
    "crate": Needs(1000, 21),
}
