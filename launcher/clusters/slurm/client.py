"""Runs Slurm's commands: the only place that does.

Children get ``LC_ALL=C``, no standard input, a session of their own and a mask that blocks SIGTERM
and SIGUSR1: with proctrack/linuxproc every descendant of a job is sent the job's signals, and on
22.05 the SIGTERM that follows ``scontrol requeue`` killed the ``scontrol update`` after it, so that
the exclusion of a node was lost without a word.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from relight.errors import RelightError
from relight.resilience.supervise.cluster import ClusterUnavailable

from . import commands, parse
from .size import Size

# Of the network, of authentication and of the controller's own troubles; all else that an order is
# answered with is a refusal (a site's job_submit plugin may word it as it likes).
_NO_ANSWER: Final = re.compile(
    r"timed out|unable to contact|unable to resolve|unable to establish|standby mode|zero bytes"
    r"|connection (?:failure|refused|reset)|(?:send|receive|shutdown) failure|broken pipe"
    r"|no route to host|network is (?:down|unreachable)|not connected|temporarily un"
    r"|munge|authentication|protocol version|incompatible versions|(?:insane|unexpected) message"
    r"|header lengths|dns srv|unknown host|name resolution|configuration source|fetch.config",
    re.IGNORECASE,
)
# The latter of a task of an array that it knows.
_NO_SUCH_JOB: Final = re.compile(r"invalid job id|^job \d+_\d+ not found", re.IGNORECASE)
# sbatch(1) ranks these above the lines of a script.
_OURS_TO_SAY: Final = frozenset(
    f"SBATCH_{name}"
    for name in (
        *("ARRAY_INX", "ERROR", "JOB_NAME", "NO_KILL", "NO_REQUEUE", "OPEN_MODE", "OUTPUT"),
        *("REQUEUE", "SIGNAL", "WAIT"),
    )
)
_FORM: Final = ("SQUEUE_", "SINFO_", "SCANCEL_", "SACCT_")  # formats and filters of the user
# Of every command, before it talks to anybody (22.05).
_NO_SOURCE: Final = "Could not establish a configuration source"
_BLOCKED: Final = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})


class SlurmMissing(RelightError):
    """Raised when a Slurm command is not installed here."""

    exit_code = 2


class SlurmRefused(RelightError):
    """Raised when Slurm answered an order, and the answer was no. ``answer`` is what it said."""

    def __init__(self, argv: Sequence[str], answer: str) -> None:
        self.answer = answer
        super().__init__(f"{argv[0]} refused: {answer or 'it gave no reason'}")


class NoCluster(ClusterUnavailable):
    """Raised when Slurm's commands do not know which cluster they belong to.

    To somebody at a terminal that is as good as no Slurm; inside a job it may pass.
    """

    exit_code = 2

    def __init__(self, argv: Sequence[str]) -> None:
        super().__init__(
            f"{argv[0]} is here, but finds no cluster: no slurm.conf, and no controller in the "
            "DNS; use `relight run` to run without Slurm"
        )


class NoSuchJob(ClusterUnavailable):
    """Raised when Slurm does not know a job, or not any more."""


def me() -> str:
    """This user for Slurm: the names in the environment may be anybody's."""
    return str(os.getuid())


def without_job_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for a new job, without what would override its script: inside a job, what
    describes the old one would become options of the new (SLURM_CPU_BIND slowed ranks threefold).

    ``SLURM_CONF`` says which Slurm to talk to and stays; so do the user's other ``SBATCH_*``.
    """
    prefixes = ("SLURM_", "SLURMD_", "SRUN_") if "SLURM_JOB_ID" in env else ()
    return {
        name: value
        for name, value in env.items()
        if name == "SLURM_CONF" or not (name.startswith(prefixes) or name in _OURS_TO_SAY)
    }


def _for_commands(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which answers have the form that we read."""
    kept = {name: value for name, value in env.items() if not name.startswith(_FORM)}
    whole = {"SLURM_BITSTR_LEN": "0"}  # else squeue cuts the list of an array's tasks, mid-number
    return {**kept, **whole, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmClient:
    """Slurm's commands as calls.

    Every call raises :class:`SlurmMissing`, or ``ClusterUnavailable`` when there was no answer; an
    order also raises :class:`SlurmRefused`. A question has no such end: whatever comes in place of
    its answer says nothing about the job. Questions and harmless orders are repeated a few times.
    """

    timeout_s: float = 20.0
    pauses_s: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)  # before asking again
    sleep: Callable[[float], None] = field(default=time.sleep)

    def job(self, job_id: str) -> parse.JobFacts:
        """What Slurm knows about a job."""
        argv = commands.show_job(job_id)
        facts = parse.parse_job(self._ask(argv))
        if facts is None:
            raise ClusterUnavailable(f"{' '.join(argv)} gave an answer that is not one job")
        return facts

    def last_state(self, job_id: str) -> parse.JobState:
        """A job's state, as long as Slurm or its accounting remembers it.

        Of several, as after a requeue, the last.
        """
        try:
            return self.job(job_id).state
        except NoSuchJob:
            states = self._ask(commands.accounted_state(job_id)).splitlines()
            return parse.job_state(states[-1] if states else None)

    def tasks_of_array(self, job_id: str) -> list[parse.QueuedJob]:
        """The tasks of an array that Slurm remembers, those that have ended too; maybe none."""
        try:
            return parse.parse_array(self._ask(commands.show_job(job_id)))
        except NoSuchJob:
            return []

    def jobs_named(self, name: str, user: str) -> list[parse.QueuedJob]:
        """A user's jobs of one name that are still in the queue."""
        return parse.parse_queue(self._ask(commands.queue_by_name(name, user)))

    def job_in_queue(self, job_id: str) -> list[parse.QueuedJob]:
        """A job that is still in the queue, or the tasks of an array that are; maybe none."""
        try:
            return parse.parse_queue(self._ask(commands.queue_by_id(job_id)))
        except NoSuchJob:
            return []

    def jobs_of(self, user: str) -> list[parse.QueuedJob]:
        """All of a user's jobs that are still in the queue."""
        return parse.parse_queue(self._ask(commands.queue_of_user(user)))

    def jobs_of_script(self, script: Path, user: str) -> list[parse.QueuedJob]:
        """A user's jobs of one script that are still in the queue."""
        return [job for job in self.jobs_of(user) if job.command == str(script)]

    def config(self) -> dict[str, str]:
        return parse.parse_config(self._ask(commands.show_config()))

    def limits_of(self, user: str, cluster: str) -> list[parse.UserLimits]:
        """What each association of the user of this name allows."""
        return parse.parse_limits(self._ask(commands.limits_of_user(user, cluster)))

    def partitions(self) -> list[Mapping[str, str]]:
        return parse.parse_partitions(self._ask(commands.show_partitions()))

    def nodes_of_partition(self, partition: str) -> dict[str, str]:
        """The state word of each of a partition's nodes."""
        return parse.parse_node_states(self._ask(commands.nodes_of_partition(partition)))

    def node_states(self, nodes: Sequence[str]) -> dict[str, str]:
        return parse.parse_node_states(self._ask(commands.node_states(nodes)))

    def boot_times(self, nodes: Sequence[str]) -> dict[str, float]:
        """When each has booted, in Unix time; those of which it is not known are left out."""
        return parse.parse_boot_times(self._ask(commands.show_nodes(nodes)))

    def submit_successor(
        self,
        script: Path,
        after: str,
        exclude: Sequence[str],
        nodes: str | None = None,
        *,
        held: bool = False,
    ) -> str:
        """Submits a script to start after a job; its id. Not repeated: it may have worked."""
        return self._submit(commands.successor(script, after, exclude, nodes, held=held))

    def submit(self, options: Sequence[str], script: Path) -> str:
        """Submits a script; its id. Not repeated: it may have worked."""
        return self._submit(("sbatch", "--parsable", *options, str(script)))

    def _submit(self, argv: Sequence[str]) -> str:
        answer = self._run(argv, without_job_variables(os.environ))
        job_id = parse.parse_submitted(answer)
        if job_id is None:
            raise ClusterUnavailable(f"sbatch printed {answer.strip()!r} where a job id was due")
        return job_id

    def requeue(self, job_id: str, *, held: bool = False) -> None:
        self._run(commands.requeue(job_id, held=held))

    def hold(self, job_ids: Sequence[str]) -> None:
        self._repeat(commands.hold(job_ids))

    def release(self, job_ids: Sequence[str]) -> None:
        self._repeat(commands.release(job_ids))

    def update(self, job_id: str, field_name: str, value: str) -> None:
        """Sets one field of a job; setting it twice is harmless, so no answer means again."""
        self._repeat(commands.update(job_id, field_name, value))

    def resize(self, job_id: str, size: Size) -> None:
        """Lets a job that waits start on fewer nodes, or more."""
        self._repeat(commands.resize(job_id, size))

    def shrink(self, job_id: str, nodes: Sequence[str]) -> None:
        """Leaves a running job these of its nodes only."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="relight-") as scratch:  # scontrol leaves two scripts there
            self._run(commands.update(job_id, "NodeList", ",".join(nodes)), cwd=scratch)

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._repeat(commands.cancel(job_ids))

    def _ask(self, argv: Sequence[str]) -> str:
        return self._repeat(argv, question=True)

    def _repeat(self, argv: Sequence[str], *, question: bool = False) -> str:
        for pause_s in self.pauses_s:
            try:
                return self._run(argv, question=question)
            except NoSuchJob:
                raise
            except ClusterUnavailable:
                self.sleep(pause_s)
        return self._run(argv, question=question)

    def _run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        question: bool = False,
        cwd: str | None = None,
    ) -> str:
        # A new job inherits the environment of sbatch, so nothing may be added to that.
        environment = _for_commands(os.environ) if env is None else env
        # A blocked signal stays blocked across exec: no shell and no code between fork and exec.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            result = subprocess.run(
                argv,
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                start_new_session=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise SlurmMissing(
                f"{argv[0]} is not on this machine's PATH: there is no Slurm here; "
                "use `relight run` to run without it"
            ) from error
        except OSError as error:
            raise ClusterUnavailable(f"{argv[0]} could not be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise ClusterUnavailable(
                f"{argv[0]} gave no answer within {self.timeout_s:g} s; try again later"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if result.returncode == 0:
            return result.stdout
        answer = (result.stderr or result.stdout).strip()
        if finds_no_cluster(answer):
            raise NoCluster(argv)
        if question and _NO_SUCH_JOB.search(answer):
            raise NoSuchJob(f"{' '.join(argv)}: {answer}")
        if question or is_no_answer(answer):
            raise ClusterUnavailable(f"{argv[0]}: {answer}; try again later")
        raise SlurmRefused(argv, answer)


def finds_no_cluster(text: str) -> bool:
    """Whether an error of Slurm means that its commands have no configuration."""
    return _NO_SOURCE in text


def is_no_answer(text: str) -> bool:
    """Whether Slurm's error means that the controller did not answer: the call may have worked."""
    return _NO_ANSWER.search(text) is not None
