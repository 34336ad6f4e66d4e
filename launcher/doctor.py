"""What a site's Slurm allows, from its configuration, and what follows for a user (pure).

The keys are those of ``scontrol show config`` and ``show partition`` (slurm.conf(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Final

from .clusters.slurm.parse import UserLimits, parse_seconds
from .site import Site
from .units import DEFAULT_LEAD_S

_CRED_EXPIRE_S: Final = 120  # slurmctld's default, and its choice for less than 5
_LEEWAY: Final = 1.25  # a save beside others is slower than one alone

_ENFORCED: Final = frozenset({"limits", "safe"})  # words of AccountingStorageEnforce

Config = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about a site. ``matters`` says that it costs work unless the user knows it."""

    subject: str
    fact: str
    follows: str
    matters: bool = False

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Save:
    """How long a save of the user's state takes, and the words that say so."""

    seconds: float
    told: str


def save_of_state(size_bytes: int, bytes_per_s: float, directory: str) -> Save:
    """The save of a state, at a rate that was measured in its directory."""
    seconds = size_bytes / bytes_per_s
    told = (
        f"a state of {size_bytes / 1024**3:.4g} GiB needs {seconds:.0f} s to save at the measured "
        f"rate of {directory} ({bytes_per_s / 1024**3:.2g} GiB/s by one process of this machine)"
    )
    return Save(seconds, told)


def examine(
    config: Config, site: Site, save: Save | None, limits: Sequence[UserLimits] | None
) -> list[Finding]:
    """All findings; ``save`` is that of the user's state, if it is known, ``limits`` what
    accounting says of the user, None where it says nothing."""
    return [
        _version(site),
        _requeue(site),
        _requeue_wait(config),
        *_time_limit(save),
        *_preemption(site, save),
        _warning_signal(config),
        _signals(config),
        _accounting(config),
        _node_loss(config),
        _arrays(config),
        _jobs_of_user(config, limits),
        *_appended(config),
        *_components(site),
    ]


def _version(site: Site) -> Finding:
    return Finding(subject="Slurm", fact=site.version, follows="relight reads 20.11 and later")


def _requeue(site: Site) -> Finding:
    if site.job_requeue:
        follows = "jobs come back by themselves when their batch host is lost"
        return Finding(subject="JobRequeue", fact="1", follows=follows)
    return Finding(
        subject="JobRequeue",
        fact="0",
        follows="not by itself: relight asks for --requeue; if that is refused here, only a "
        "successor job brings a run back, and a job of `relight sbatch` does not come back",
    )


def _requeue_wait(config: Config) -> Finding:
    match = re.search(r"cred_expire=(\d+)", config.get("AuthInfo", ""))
    wait_s = int(match[1]) if match and int(match[1]) >= 5 else _CRED_EXPIRE_S
    return Finding(
        subject="wait of a requeued job",
        fact=f"{wait_s + 1} s",
        follows="restart.mode: successor avoids it; "
        "`scontrol update JobId=… StartTime=now` ends it once the job is pending",
    )


def _time_limit(save: Save | None) -> Iterator[Finding]:
    if save is None or save.seconds * _LEEWAY <= DEFAULT_LEAD_S:
        return
    yield Finding(
        subject="time limit",
        fact=f"checkpoint.lead is {DEFAULT_LEAD_S:.0f} s unless it is set",
        follows=f"{save.told}: set checkpoint.lead: {ceil(save.seconds * _LEEWAY)}s",
        matters=True,
    )


def _preemption(site: Site, save: Save | None) -> Iterator[Finding]:
    for partition in site.partitions:
        subject = f"preemption in {partition.name}"
        if not partition.preempts:
            yield Finding(subject=subject, fact="none", follows="jobs there are not preempted")
            continue
        notice_s = partition.grace_s + site.kill_wait_s
        fact = (
            f"{partition.preempt_mode}, GraceTime {partition.grace_s} s and KillWait "
            f"{site.kill_wait_s} s"
        )
        if save is None:
            follows = (
                f"a save must take less than {notice_s} s; --save 90s, or --state 400GB with "
                "--checkpoint-dir DIR, compares yours"
            )
            yield Finding(subject=subject, fact=fact, follows=follows)
        elif save.seconds < notice_s:
            yield Finding(subject=subject, fact=fact, follows=f"{save.told}: that fits")
        else:
            follows = (
                f"{save.told}; the grace of partition {partition.name} is {notice_s} s: set "
                "checkpoint.interval to what you can afford to lose, for that save comes too late"
            )
            yield Finding(subject=subject, fact=fact, follows=follows, matters=True)


def _warning_signal(config: Config) -> Finding:
    parameters = config.get("PreemptParameters", "") + config.get("SlurmctldParameters", "")
    if "send_user_signal" in parameters:
        follows = "--signal is sent at preemption, too: a script can save in the grace time"
        return Finding(subject="send_user_signal", fact="on", follows=follows)
    return Finding(
        subject="send_user_signal",
        fact="off",
        follows="a batch script hears of preemption only when the grace time is over; "
        "steps that srun started hear SIGTERM at once",
    )


def _signals(config: Config) -> Finding:
    tracking = config.get("ProctrackType", "unknown").removeprefix("proctrack/")
    if tracking == "linuxproc":
        follows = "every process of a job gets its signals: one without a handler dies of them"
    elif tracking == "cgroup" and config.get("SignalChildrenProcesses", "no") != "yes":
        follows = "children of a script get no signals: relight passes them on to the script"
    else:
        follows = "relight passes signals on where Slurm does not"
    return Finding(subject="signals", fact=tracking, follows=follows)


def _accounting(config: Config) -> Finding:
    kind = config.get("AccountingStorageType", "unknown").removeprefix("accounting_storage/")
    follows = "relight needs no accounting: the run folder has the history"
    return Finding(subject="accounting", fact=kind, follows=follows)


def _node_loss(config: Config) -> Finding:
    timeout_s = parse_seconds(config.get("SlurmdTimeout"))
    fact = "unknown" if timeout_s is None else f"noticed after {timeout_s} s"
    follows = "relight's ranks notice in 5 s; a script of `relight sbatch` waits for Slurm"
    return Finding(subject="loss of a node", fact=fact, follows=follows)


def _arrays(config: Config) -> Finding:
    size = config.get("MaxArraySize", "unknown")
    follows = "an array's largest index is one less; 0 means no arrays"
    return Finding(subject="MaxArraySize", fact=size, follows=follows)


def _jobs_of_user(config: Config, limits: Sequence[UserLimits] | None) -> Finding:
    subject, qos = "jobs of yours", "a QOS may limit them, too: `sacctmgr show qos` tells"
    if limits is None:
        return Finding(subject=subject, fact="unknown", follows=f"sacctmgr does not say; {qos}")
    told = [text for one in limits if (text := _limit_words(one))]
    fact = "; ".join(told) or "no limit"
    if told and not _ENFORCED & set(config.get("AccountingStorageEnforce", "").split(",")):
        return Finding(subject=subject, fact=f"{fact}; not enforced", follows=qos)
    if any(one.queued == 1 for one in limits):
        follows = (
            "no successor can be sent while the run's job is there: a run comes back by requeue, "
            "where Slurm lets it"
        )
        return Finding(subject=subject, fact=fact, follows=follows, matters=True)
    follows = f"`relight submit` waits for room; each task of a sweep counts; {qos}"
    return Finding(subject=subject, fact=fact, follows=follows)


def _limit_words(limits: UserLimits) -> str:
    where = f"{limits.account} in {limits.partition}" if limits.partition else limits.account
    named = (("MaxJobs", limits.running), ("MaxSubmitJobs", limits.queued))
    words = ", ".join(f"{name} {most}" for name, most in named if most is not None)
    return f"{words} ({where})" if words else ""


def _appended(config: Config) -> Iterator[Finding]:
    if config.get("JobFileAppend") == "0":
        follows = "a requeued job begins its output anew: relight asks for --open-mode=append"
        yield Finding(subject="JobFileAppend", fact="0", follows=follows)


def _components(site: Site) -> Iterator[Finding]:
    if not site.spans_components:
        yield Finding(
            subject="steps over components",
            fact="disable_hetjob_steps",
            follows="runs with resources.components do not start: use nodes of one kind",
            matters=True,
        )


def as_text(findings: Sequence[Finding]) -> str:
    """For people: what matters first."""
    lines = []
    for finding in sorted(findings, key=lambda finding: not finding.matters):
        mark = "!" if finding.matters else " "
        lines.append(f"{mark} {finding.subject}: {finding.fact}\n    {finding.follows}")
    return "\n".join(lines)
