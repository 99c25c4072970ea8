"""`snakemake --reporter eopipe`: a crate of the jobs that have run, also of a run that failed or is not complete.

Snakemake finds report plugins by the name of this package.
"""

from dataclasses import dataclass, field
from pathlib import Path

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_report_plugins.reporter import ReporterBase
from snakemake_interface_report_plugins.settings import ReportSettingsBase


@dataclass
class ReportSettings(ReportSettingsBase):  # type: ignore[misc]
    """`--report-eopipe-path FOLDER`."""

    path: Path = field(
        default=Path("crate"), metadata={"help": "Folder of the crate; only an existing crate is replaced."}
    )


class Reporter(ReporterBase):  # type: ignore[misc]
    """Makes the crate from the run records beside the outputs."""

    def render(self) -> None:
        """Write the crate; raises WorkflowError with the message of an EopipeError."""
        from eopipe.errors import EopipeError
        from snakemake_report_plugin_eopipe.report import report

        try:
            report(self.dag, Path(self.settings.path))
        except EopipeError as error:
            raise WorkflowError(str(error)) from None
