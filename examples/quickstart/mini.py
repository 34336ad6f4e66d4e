"""The story on a real Slurm: a preemption by a job of partition high, and a host without power."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stage.run import Run, lm
from stage.site import MINICLUSTER, RELIGHT, REPOSITORY, TURN, Site, eventually

from .telling import NotProven, Say, compare

OPTIONS = ("--grace", "10", "--kill-wait", "5", "--cred-expire", "5")
EVERY = 10  # steps between checkpoints, as stage.run has it
STEP_S = 0.2


def tell(say: Say, steps: int, *, keep: bool) -> None:
    """Raises NotProven when a run does not end as promised."""
    with _turn(say), _site(say, keep=keep) as site:
        try:
            _tell(say, site, steps, keep=keep)
        except AssertionError as error:  # the stage's word for what did not come
            raise NotProven(str(error)) from error


@contextmanager
def _turn(say: Say) -> Iterator[None]:
    """One machine has one mini cluster: this waits for tests that use it, and they for this."""
    with TURN.open("w") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for tests that use the mini cluster")
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@contextmanager
def _site(say: Say, *, keep: bool) -> Iterator[Site]:
    """The mini cluster; it goes down again if it was not up before."""
    up = [str(MINICLUSTER), "up", "--share", str(REPOSITORY), *OPTIONS]
    done = subprocess.run(up, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotProven(
            f"no mini cluster: {done.stderr.strip() or done.stdout.strip()}\n"
            "scripts/minicluster status says what is up, scripts/minicluster down ends it"
        )
    site = Site(OPTIONS)
    ours = "already up" not in done.stdout
    say(f"mini cluster {done.stdout.strip()}")
    try:
        if site.jobs():
            raise NotProven("the mini cluster has jobs already: wait for them, or cancel them")
        yield site
    finally:
        if keep:
            say(f"kept: scripts/minicluster run -- {RELIGHT} status")
            say("scripts/minicluster down ends the cluster, and removes them")
        elif ours:
            site.down()
            say("mini cluster down")


def _tell(say: Say, site: Site, steps: int, *, keep: bool) -> None:
    say(f"an undisturbed run first: 2 hosts with a rank each, {steps} steps")
    with _submitted(site, steps, 0.0, keep=keep) as run:
        _complete(run)
        undisturbed = run.digest()
    say("done; now the same again, with faults")
    with _submitted(site, steps, STEP_S, keep=keep) as run:
        say(f"submitted as job {run.job_id}")
        _preempt(say, site, run)
        with _power_loss(say, site, run):
            _complete(run)
        say("the disturbed run is done")
        disturbed = run.digest()
        history = run.history()
    compare(say, undisturbed, disturbed)
    print(f"\n{history}", end="", flush=True)


def _preempt(say: Say, site: Site, run: Run) -> None:
    run.wait_for_checkpoint(EVERY)
    high = site.preempt(seconds=1)
    say(f"checkpoint of step {max(run.committed())} is there: job {high} of partition high comes")
    run.wait_for("AllocationArranged")
    arranged = run.data_of("AllocationArranged")[0]
    say(f"preempted: saved its state, goes on as job {arranged['job_id']}")
    run.wait_for("AttemptStarted", count=2)
    run.wait_for("RanksStarted", count=2)
    step = run.data_of("RanksStarted")[1]["restored_step"]
    say(f"job {arranged['job_id']} goes on from step {step} on {' and '.join(run.nodes())}")


@contextmanager
def _power_loss(say: Say, site: Site, run: Run) -> Iterator[None]:
    """A host that is not the batch host loses its power; it boots again at the end."""
    run.wait_for_checkpoint(max(run.committed()) + 1)
    victim = next(node for node in run.nodes() if node != run.batch_node())
    site.node("kill", victim)
    say(f"checkpoint of step {max(run.committed())} is there: {victim} has lost its power")
    try:
        run.wait_for("RanksStarted", count=3)
        say(f"goes on without it, on {' and '.join(run.nodes())}")
        yield
    finally:
        site.node("start", victim)


def _complete(run: Run) -> None:
    state = run.finish()["state"]
    if state != "COMPLETED":
        raise NotProven(f"the run ended {state}\n{run.story()}")


@contextmanager
def _submitted(site: Site, steps: int, step_s: float, *, keep: bool) -> Iterator[Run]:
    """A run that is gone at the end, with its jobs and, unless they are kept, its files."""
    run = Run.submit(site, lm(steps, step_s))
    try:
        yield run
    finally:
        site.user("scancel", f"--name={run.run_id}", check=False)
        with suppress(AssertionError):
            eventually(lambda: not site.jobs(), 30, lambda: "jobs are left")
        if not keep:
            shutil.rmtree(run.root, ignore_errors=True)
            (site.shared / "lm.yaml").unlink(missing_ok=True)
