"""A Snakemake profile for a site, as text that explains itself."""

from dataclasses import dataclass, field

from eopipe.clusters.geometry import Geometry
from eopipe.clusters.slurm import Site
from eopipe.errors import UsageError

# Slurm kills a job that is over its time half a minute after it says so, too soon for a large checkpoint. A signal
# other than TERM would end the job's own Snakemake at once, and the job with it.
WARNING = "--signal=TERM@300"
# A job that ended is told by squeue only while the controller remembers it.
FIRST_LOOK_S = 20
SETTINGS = """\
executor: slurm
{queue}
retries: {retries}                         # stopped, too long, out of memory: again; only here, never in a rule
rerun-incomplete: true
keep-going: true
show-failed-logs: true
latency-wait: 60                   # seconds until a shared file system shows what a node wrote
local-cores: 2                     # of the login node: search, fetch and other small steps
persistence-backend: db            # three files instead of one for each output
benchmark-extended: true           # what jobs asked, for `eopipe usage` and `eopipe profile tune`
slurm-init-seconds-before-status-checks: {first_look}
{status}
{requeue}
"""
# With arrays nothing may keep back a part of the scenes that are ready (arrays.py).
ARRAYS = """\
jobs: 10000                        # in the queue at a time; with arrays never less than there are scenes
max-jobs-per-timespan: 10000/1s    # less would tear arrays apart
slurm-array-jobs: fetch,preprocess,label,composite,predict   # all scenes that are ready
slurm-array-limit: 50              # in one sbatch, whose line may not grow too long"""
ONE_BY_ONE = """\
jobs: {jobs:<29}# most jobs in the queue at a time, each by an sbatch of its own
max-jobs-per-timespan: 1/1s        # over a minute Snakemake would wait up to a minute at its end"""


@dataclass(frozen=True)
class Wishes:
    """What a user says of the runs to come; what is not said is the cluster's default."""

    partition: str | None = None
    training: str | None = None
    account: str | None = None
    preemptible: bool = False
    geometry: Geometry = field(default_factory=Geometry)
    jobs: int | None = None
    retries: int = 3


def text(site: Site, wishes: Wishes) -> str:
    """The profile. Raises UsageError for what the site cannot give."""
    ordinary = site.partition(wishes.partition) if wishes.partition else site.default
    training = site.partition(wishes.training) if wishes.training else ordinary
    wrong = [*wishes.geometry.conflicts(training), *_requeueing(site, wishes)]
    if wrong:
        raise UsageError("; ".join(wrong))
    lines = [f"# Snakemake on the Slurm cluster {site.name} (Slurm {site.version}); made by `eopipe profile slurm`."]
    lines += [_settings(site, wishes), "default-resources:", f"  slurm_partition: {ordinary.name}"]
    if account := _account(site, wishes):
        lines.append(f"  slurm_account: {account}")
    lines += ["set-resources:", "  train:", f"    slurm_partition: {training.name}"]
    lines += [f"    {name}: {value}" for name, value in wishes.geometry.resources().items()]
    if training.minutes and training.minutes > 10:
        lines.append(
            f"    slurm_extra: '{WARNING}'  # five minutes before a limit: it saves its state and goes on in a retry"
        )
    if training.minutes:
        lines.append(f"    runtime: {training.minutes}  # the partition's limit; a longer training goes on by itself")
    return "\n".join(lines) + "\n"


def _settings(site: Site, wishes: Wishes) -> str:
    status = "slurm-status-command: squeue      # the database of jobs would be asked otherwise"
    if site.keeps_finished_s < 3 * FIRST_LOOK_S:
        if not site.accounting:
            raise UsageError(
                f"the cluster {site.name} forgets a job {site.keeps_finished_s} s after its end and accounts for none, "
                f"so nobody can tell how it ended; ask for MinJobAge of at least {3 * FIRST_LOOK_S} s"
            )
        status = "slurm-status-command: sacct       # squeue forgets ended jobs too soon here"
    requeue = "slurm-no-requeue: true            # Snakemake, not Slurm, starts a lost job again"
    if wishes.preemptible:
        requeue = "slurm-requeue: true               # a pre-empted job waits and goes on by itself"
    queue = ARRAYS if wishes.jobs is None else ONE_BY_ONE.format(jobs=wishes.jobs)
    told = {"queue": queue, "retries": wishes.retries, "first_look": FIRST_LOOK_S}
    return SETTINGS.format(**told, status=status, requeue=requeue).rstrip()


def _requeueing(site: Site, wishes: Wishes) -> list[str]:
    names = [name for name in (wishes.partition, wishes.training) if name]
    modes = {name: site.partition(name).preempted for name in names}
    asked = [name for name, mode in modes.items() if mode == "REQUEUE"]
    if asked and not wishes.preemptible:
        # Without requeueing the executor waits for ever for a job that was pre-empted.
        return [f"jobs in partition {asked[0]} may be pre-empted; say --preemptible, or choose another one"]
    cancelled = [name for name, mode in modes.items() if mode == "CANCEL"]
    if cancelled:
        return [f"partition {cancelled[0]} cancels pre-empted jobs, which Snakemake does not see; choose another one"]
    return []


def _account(site: Site, wishes: Wishes) -> str | None:
    if wishes.account and site.accounts and wishes.account not in site.accounts:
        raise UsageError(f"you cannot charge account {wishes.account}; yours are {', '.join(site.accounts)}")
    if not wishes.account and len(site.accounts) > 1:
        raise UsageError(f"you can charge {', '.join(site.accounts)}; say which with --account")
    return wishes.account or (site.accounts[0] if site.accounts else None)
