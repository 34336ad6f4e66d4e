"""A run that has started before the runs that it waits for are done: back into the queue, or no.

It is looked at once: a run that may go on keeps a note of it, whatever becomes of the others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_RESTART, EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.cluster import ClusterUnavailable, RestartRefused
from relight.resilience.supervise.standing import read_verdict, write_verdict

from .clusters.slurm.client import SlurmClient, SlurmMissing, SlurmRefused
from .clusters.slurm.restart import Rearrangement
from .clusters.slurm.size import next_size
from .dependencies import Unmet, tell, unmet
from .runs import add_job

_T = TypeVar("_T")
_SETTLES_S: Final = 10.0  # a shared file system may show late how a run has ended
_TRIES: Final = 20  # while Slurm is silent: five minutes, and the time that it takes to say nothing
_PAUSE_S: Final = 15.0
_SILENT: Final = (ClusterUnavailable, SlurmMissing)  # the file system of the commands may hang, too


def go_back(
    config: RunConfig, env: Mapping[str, str], client: SlurmClient | None = None
) -> int | None:
    """The exit code of this job when it must not go on; None when it may."""
    folder = RunFolder(config.run_dir)
    if folder.met.exists() or folder.cancelled.exists() or read_verdict(folder) is not None:
        return None  # the supervisor knows what to do then
    client = client or SlurmClient()
    try:
        lacking = _patiently(lambda: _lacking(config, client), client)
        if lacking is None:
            with suppress(OSError):  # without the note the next attempt looks once more
                folder.met.touch(mode=0o600)
            return None
        if lacking.reason is not None:
            return _stop(folder, lacking.reason)
        ahead = _rearrangement(config, env, lacking, client)
        job_id = _patiently(lambda: ahead.arrange((), "auto"), client).job_id
    except _SILENT as error:
        return _requeue(folder, env, client, error)
    except (RestartRefused, SlurmRefused) as refusal:
        return _stop(folder, f"too early, and there is no other start: {refusal}")
    with suppress(OSError):  # the run is found by its name, too
        add_job(folder, job_id)
        tell(config.after, job_id)
    sys.stderr.write(f"relight: too early; the run goes on as job {job_id}\n")
    return EXIT_RESTART


def _lacking(config: RunConfig, client: SlurmClient) -> Unmet | None:
    lacking = unmet(config.after, client)
    if lacking is not None and lacking.reason is not None:
        client.sleep(_SETTLES_S)
        lacking = unmet(config.after, client)
    return lacking


def _rearrangement(
    config: RunConfig, env: Mapping[str, str], lacking: Unmet, client: SlurmClient
) -> Rearrangement:
    folder = RunFolder(config.run_dir)
    return Rearrangement(
        client=client,
        job_id=env["SLURM_JOB_ID"],
        restart_count=int(env.get("SLURM_RESTART_COUNT") or 0),
        run_id=config.run_id,
        script=folder.script,
        nodes_needed=config.nodes_needed,
        size=next_size(config),
        held=folder.held.exists(),
        after=lacking.jobs,
    )


def _patiently(ask: Callable[[], _T], client: SlurmClient) -> _T:
    for _ in range(_TRIES):
        with suppress(*_SILENT):
            return ask()
        client.sleep(_PAUSE_S)
    return ask()


def _requeue(
    folder: RunFolder, env: Mapping[str, str], client: SlurmClient, silence: Exception
) -> int:
    """The same job once more: it needs no answer but one. It looks again when it starts."""
    job_id = env["SLURM_JOB_ID"]
    try:
        client.update(job_id, "Requeue", "1")  # on the way to a successor it was switched off
        client.requeue(job_id, held=folder.held.exists())
    except (*_SILENT, SlurmRefused) as error:
        return _stop(
            folder,
            f"Slurm did not say whether the runs that this one waits for are done ({silence}), and "
            f"did not requeue the job: {error}",
        )
    sys.stderr.write(f"relight: Slurm is silent ({silence}); job {job_id} is requeued\n")
    return EXIT_RESTART


def _stop(folder: RunFolder, reason: str) -> int:
    order = Finish(outcome=Outcome.STOPPED, exit_code=EXIT_STOP, cause="after", reason=reason)
    write_verdict(folder, order, time.time())
    sys.stderr.write(f"relight: {reason}: nothing is started\n")
    return EXIT_STOP
