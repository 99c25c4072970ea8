"""eopipe: satellite scenes to a trained, measured, mapped and citable model."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
# The Python API, whose types are in __init__.pyi; imported when it is used, since the command line is to start fast.
API = {
    "open_cube": "eopipe.inspection.cube",
    "open_chips": "eopipe.inspection.chip_dataset",
    "load_model": "eopipe.inspection.models",
    "save_model": "eopipe.inspection.models",
    "read_metrics": "eopipe.inspection.run_metrics",
}


def __getattr__(name: str) -> Any:
    """A function of the Python API: `eopipe.open_cube`."""
    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(API[name]), name)


def __dir__() -> list[str]:
    """The names of the package, also of what is not imported yet: for completion in notebooks."""
    return sorted({*globals(), *API})
