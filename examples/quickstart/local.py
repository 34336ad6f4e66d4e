"""The story without Slurm: a rank is killed, later the job is preempted; nothing is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from .local_run import LocalRun
from .telling import Say, compare

VICTIM = 1
STEP_S = 0.2  # on a busy machine too, the run is not over before it is disturbed


def tell(say: Say, folder: Path, steps: int) -> None:
    """Raises NotProven when a run does not end as promised."""
    every = max(1, steps // 6)
    say(f"an undisturbed run first: 2 pretend nodes with a rank each, {steps} steps")
    with LocalRun(folder, "undisturbed", steps=steps, every=every, step_s=0.0) as run:
        for step in range(2 * every, steps, 2 * every):
            run.wait_for(f"checkpoint of step {step}", partial(_has_saved, run, step))
            say(f"its checkpoint of step {run.saved()} is there")
        run.finish()
        undisturbed = run.digest()
    say(f"done; now the same again, with a checkpoint every {every} steps, and with faults")
    with LocalRun(folder, "disturbed", steps=steps, every=every, step_s=STEP_S) as run:
        run.wait_for("second checkpoint", lambda: run.saved() >= 2 * every)
        _kill_a_rank(say, run)
        run.wait_for("third checkpoint", lambda: run.saved() >= 3 * every)
        _preempt(say, run)
        run.finish()
        say("the disturbed run is done")
        disturbed = run.digest()
        history = run.relight("history")
    compare(say, undisturbed, disturbed)
    print(f"\n{history}", end="", flush=True)


def _has_saved(run: LocalRun, step: int) -> bool:
    return run.saved() >= step


def _kill_a_rank(say: Say, run: LocalRun) -> None:
    process = run.program(VICTIM)
    process.kill()
    say(f"checkpoint of step {run.saved()} is there: rank {VICTIM} (process {process.pid}) killed")
    run.wait_for("restart", lambda: len(run.named("RanksStarted")) == 2)
    step = run.named("RanksStarted")[-1].data["restored_step"]
    say(f"all ranks were started again in place, from the checkpoint of step {step}")


def _preempt(say: Say, run: LocalRun) -> None:
    saved, supervisor = run.saved(), run.supervisor()
    supervisor.terminate()
    say(f"checkpoint of step {saved} is there: SIGTERM to the job, as in a preemption")
    run.wait_for("next attempt", lambda: len(run.named("RanksStarted")) == 3)
    step = run.named("RanksStarted")[-1].data["restored_step"]
    say(f"the ranks saved step {step} and stopped; a new attempt goes on from there")
