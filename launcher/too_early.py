"""A run that has started before the runs that it waits for are done: back into the queue, or no."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Final

from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_RESTART, EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import read_verdict, write_verdict

from .clusters.slurm.client import SlurmClient
from .dependencies import unmet

_SETTLES_S: Final = 10.0  # a shared file system may show late how a run has ended


def go_back(config: RunConfig, env: Mapping[str, str]) -> int | None:
    """The exit code of this job when it must not go on; None when it may.

    Raises:
        ClusterUnavailable, SlurmRefused: Slurm does not say, or takes no job.
    """
    folder = RunFolder(config.run_dir)
    if folder.cancelled.exists() or read_verdict(folder) is not None:
        return None  # the supervisor knows what to do then
    client = SlurmClient()
    lacking = unmet(config.after, client)
    if lacking is not None and lacking.reason is not None:
        time.sleep(_SETTLES_S)
        lacking = unmet(config.after, client)
    if lacking is None:
        return None
    if lacking.reason is not None:
        order = Finish(
            outcome=Outcome.STOPPED, exit_code=EXIT_STOP, cause="after", reason=lacking.reason
        )
        write_verdict(folder, order, time.time())
        sys.stderr.write(f"relight: {lacking.reason}: nothing is started\n")
        return EXIT_STOP
    after = ":".join((env["SLURM_JOB_ID"], *lacking.jobs))
    job_id = client.submit_successor(folder.script, after, ())
    sys.stderr.write(f"relight: too early; the run goes on as job {job_id}\n")
    return EXIT_RESTART
