"""``relight run --debug``: one rank in this terminal, with nothing of ours between it and a person.

No agent, no supervisor, no restart: a debugger has the terminal, and Ctrl-C is the program's.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from relight.errors import UsageError
from relight.resilience.config import RunConfig
from relight.resilience.supervise.container import program_of
from relight.resilience.worker.secret_files import read_secrets

from .spec import JobSpec

_ONE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "NODE_RANK": "0",
    "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
}


def run_one_rank(spec: JobSpec, config: RunConfig) -> int:
    """Runs the command once, with ``setup``, ``env`` and secrets; its exit code.

    Checkpoints go into a folder that is removed at the end: those of the run are not touched.

    Raises:
        UsageError: a secret cannot be read, or the working directory is not there.
    """
    with tempfile.TemporaryDirectory(prefix="relight-debug-") as checkpoints:
        try:
            env = debug_environment(config, Path(checkpoints), os.environ)
            program = subprocess.Popen(
                debug_command(spec.setup, program_of(config, config.command)),
                cwd=config.working_dir,
                env=env,
            )
        except (OSError, ValueError) as error:
            raise UsageError(f"the program cannot be started: {error}") from error
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program's own, as at a prompt
        try:
            code = program.wait()
        finally:
            signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def debug_command(setup: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command, behind the lines of ``setup`` in one shell; the first that fails ends it."""
    if not setup:
        return list(command)
    lines = [
        f"{line}\nrelight_code=$?; [ $relight_code = 0 ] || exit $relight_code" for line in setup
    ]
    return ["bash", "-c", "\n".join([*lines, f"exec {shlex.join(command)}"])]


def debug_environment(
    config: RunConfig, checkpoints: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """What the rank finds: a world of one, and nobody to report to."""
    without = {name: text for name, text in environ.items() if not name.startswith("RELIGHT_")}
    return {
        **without,
        **_ONE_RANK,
        "MASTER_PORT": environ.get("MASTER_PORT", "29500"),
        **config.env,
        **read_secrets(config.secret_files),
        "RELIGHT_RUN_ID": config.run_id,
        "RELIGHT_CHECKPOINT_DIR": str(checkpoints),
        "RELIGHT_CHECKPOINT_INTERVAL": config.checkpoint.interval,
    }
