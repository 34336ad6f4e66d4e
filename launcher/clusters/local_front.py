"""What ``relight run`` is while a local run lives: it starts the attempts one after another.

SIGTERM, and SIGHUP of a terminal that is closed, stop the run so that it can go on later (exit 75),
SIGINT cancels it. Both are passed on to the attempt, which saves first; a second SIGINT kills it.
Whatever an attempt leaves behind, its ``setup`` lines included, ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from relight.errors import UsageError
from relight.resilience.config import RunConfig
from relight.resilience.decide.actions import Finish, Outcome
from relight.resilience.exit_codes import EXIT_FAILED, EXIT_RESTART, EXIT_STOP
from relight.resilience.run_folder import RunFolder
from relight.resilience.supervise.standing import read_verdict, write_verdict

from ..run_folder_away import RunFolderAway, once_there
from ..watch import Watcher, catch_up
from .adoption import adopt_orphans, kill_adopted
from .local import GRACE_S, HELD, JOB_ID, NODES, RESTART, RESUMED, read_wishes, told_path

if TYPE_CHECKING:
    from .slurm.held import HeldAllocation

_TICK_S: Final = 0.1
_INTERRUPTED: Final = "relight run was interrupted (Ctrl-C)"
_TERMINATED: Final = "relight run was sent SIGTERM"
_CLOSED: Final = "the terminal of relight run was closed (SIGHUP)"
_HELD: Final = "relight hold was called"
_LATE_S: Final = 15.0  # after the grace, for the supervisor to end by itself


def front_file(folder: RunFolder) -> Path:
    """Is locked while the run's front or an attempt of it lives."""
    return folder.root / "front"


def allocation_path(folder: RunFolder) -> Path:
    """Holds the id of the Slurm job whose nodes the run was given; absent on this machine alone."""
    return folder.root / "allocation"


def allocation_of(folder: RunFolder) -> str | None:
    """The Slurm job whose nodes a local run has, or had."""
    try:
        return allocation_path(folder).read_text()
    except FileNotFoundError:
        return None


def is_alive(folder: RunFolder) -> bool:
    """Whether a local run has a front or an attempt that lives."""
    try:
        with front_file(folder).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def _locked(folder: RunFolder) -> Iterator[int]:
    fd = os.open(front_file(folder), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"the run in {folder.root} is alive already") from None
        yield fd
    finally:
        os.close(fd)


def pretend_nodes(needed: int, excluded: frozenset[str]) -> tuple[str, ...]:
    """The first names that are not excluded: a pretend machine has as many nodes as it needs."""
    names = (f"node{number}" for number in count())
    return tuple(islice((name for name in names if name not in excluded), needed))


@dataclass(slots=True)
class Front:
    """The attempts of one local run."""

    folder: RunFolder
    config: RunConfig
    watcher: Watcher
    held: HeldAllocation | None = None  # whose nodes these are; None: pretend nodes
    resumed: bool = False  # by hand: what was spent of the run's budgets is forgiven
    _attempt: subprocess.Popen[bytes] | None = None
    _told: signal.Signals | None = None
    _told_at: float = field(default=0.0)
    _killed: str | None = None  # why we have killed the attempt

    def run(self) -> int:
        """Runs attempts until one does not ask for another; the exit code.

        Raises:
            UsageError: another front of this run is alive.
        """
        with _locked(self.folder) as lock, self._signals(), self.watcher:
            self.folder.held.unlink(missing_ok=True)  # --resume releases it
            told_path(self.folder).unlink(missing_ok=True)
            if self.held is not None:
                allocation_path(self.folder).write_text(self.held.job_id)
            not_ours = adopt_orphans()
            while True:
                code = self._run_attempt(lock)
                kill_adopted(not_ours)
                if self._told is signal.SIGINT:
                    self._note_cancel()
                    return EXIT_FAILED
                if self._told is signal.SIGTERM and code == -signal.SIGTERM:
                    return EXIT_RESTART  # it had not even begun
                over = code != EXIT_RESTART or self._told is not None
                if over or not self._goes_on():
                    return code if code >= 0 else EXIT_FAILED
                self.resumed = False

    @property
    def told(self) -> signal.Signals | None:
        """The signal that ended the run, if one did."""
        return self._told

    def _goes_on(self) -> bool:
        """Whether there is a run folder; one that cannot be read for now says nothing."""

        def pause(seconds: float) -> None:
            if self._told is not None:
                raise RunFolderAway(f"told to stop while {self.folder.root} could not be read")
            time.sleep(seconds)

        # One that is absent was removed, unless what it lies in is away, too.
        return once_there(self.folder.root.parent, self.folder.plan.exists, sleep=pause)

    def _run_attempt(self, lock: int) -> int:
        env = self._next_env()
        log = self.folder.attempts / f"{env[JOB_ID]}.out"
        with log.open("ab") as output:
            self._attempt = subprocess.Popen(
                ["bash", str(self.folder.script)],
                cwd=self.config.working_dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a terminal's Ctrl-C is for the front, which passes it on
                pass_fds=(lock,),  # the run counts as alive until the attempt has ended, too
            )
        if self._told is not None:  # it came while there was no attempt to pass it on to
            self._pass_on(self._told)
        hinted = False
        while (code := self._attempt.poll()) is None:
            with contextlib.suppress(OSError):  # the run folder is away: they are looked for again
                self._look_for_marks()
            if self._told is signal.SIGINT and not hinted:  # before the end is seen and told
                hinted = True
                self.watcher.say("the run is cancelled: it saves and ends; Ctrl-C kills it at once")
            self.watcher.look()
            if self._told is not None and time.monotonic() - self._told_at > GRACE_S + _LATE_S:
                self._killed = self._killed or f"it had not ended after {GRACE_S + _LATE_S:.0f} s"
                self._pass_on(signal.SIGKILL)
            time.sleep(_TICK_S)
        self.watcher.look()
        if code < 0:
            with contextlib.suppress(OSError):  # the run folder is away
                catch_up(self.folder)
            if self._killed is not None:
                self.watcher.say(f"the run was killed: {self._killed}")
            elif -code != self._told:  # of what we passed on it dies only before it has begun
                by = signal.Signals(-code).name
                self.watcher.say(f"the supervisor was killed by {by}; see {log}")
        return code

    def _look_for_marks(self) -> None:
        """What ``relight cancel`` and ``relight hold`` leave."""
        if self._told is None and self.folder.cancelled.exists():
            self._on_signal(signal.SIGINT, None)
        elif self._told is None and self.folder.held.exists():
            self._on_signal(signal.SIGTERM, None)

    def _next_env(self) -> dict[str, str]:
        job_id = f"local-{self.config.run_id.rpartition('-')[2]}"
        past = [path.stem for path in self.folder.journals.glob(f"{job_id}.*.jsonl")]
        excluded = read_wishes(self.folder, past, self.watcher.say)
        wanted = self.config.nodes_wanted
        if self.held is None:
            nodes, held = pretend_nodes(wanted, excluded), {}
        else:
            nodes = tuple(node for node in self.held.nodes if node not in excluded)[:wanted]
            held = {HELD: self.held.job_id}
        return {
            **os.environ,
            **held,
            JOB_ID: job_id,
            RESTART: str(len(past)),
            RESUMED: "1" if self.resumed else "0",
            NODES: ",".join(nodes),
        }

    @contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not under nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        closed = number == signal.SIGHUP
        number = signal.SIGTERM if closed else number
        again = self._told is signal.SIGINT and number == signal.SIGINT
        if not again:
            self._told, self._told_at = signal.Signals(number), time.monotonic()
        if number == signal.SIGTERM:
            with contextlib.suppress(OSError):  # it is a matter of words only
                why = _HELD if self.folder.held.exists() else _CLOSED if closed else _TERMINATED
                told_path(self.folder).write_text(why)
        else:
            self._mark_cancelled()
        if again:
            self._killed = "Ctrl-C was pressed again"
        self._pass_on(signal.SIGKILL if again else signal.Signals(number))

    def _mark_cancelled(self) -> None:
        # The mark may be there, and the folder removed or away.
        with contextlib.suppress(OSError), self.folder.cancelled.open("x") as mark:
            mark.write(_INTERRUPTED)

    def _pass_on(self, number: signal.Signals) -> None:
        """To the attempt; while its ``setup`` runs also to that, which nobody else would tell."""
        if self._attempt is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL or _is_shell(self._attempt.pid):
                os.killpg(self._attempt.pid, number)
            else:
                self._attempt.send_signal(number)

    def _note_cancel(self) -> None:
        """The attempt was killed before it could say how the run ended."""
        if self.folder.plan.exists() and read_verdict(self.folder) is None:
            order = Finish(
                outcome=Outcome.CANCELLED,
                exit_code=EXIT_STOP,
                cause="cancelled",
                reason=self.folder.cancelled.read_text() or "relight cancel was called",
            )
            write_verdict(self.folder, order, time.time())


def _is_shell(pid: int) -> bool:
    """Whether an attempt is still its script: later it becomes Python."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "bash\n"
    except FileNotFoundError:
        return False
