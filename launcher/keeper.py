"""The parent of the supervisor: passes signals on, and starts it again when it was killed.

The batch script is this process, so the job lives on when the supervisor does not, e.g. by the out
of memory killer. The next life of the supervisor goes on from the journal.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from .job_output import flush, tell

LIVES: Final = 4  # in a row that bring the run nowhere
LONG_LIFE_S: Final = 1800.0  # a life of this length was not in vain
_FIRST_PAUSE_S: Final = 0.5  # between two lives, doubled each time: what ended one may pass
_TURN_S: Final = 0.05
EXIT_CRASHED: Final = 70  # an unexpected error of ours (EX_SOFTWARE of sysexits.h)
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_PR_SET_PDEATHSIG: Final = 1


def keep(
    supervise: Callable[[int], int], progress: Callable[[], object], leave: Callable[[], int]
) -> int:
    """Run ``supervise(life)`` in a child, again after a violent end; its exit code.

    ``life`` counts from 1. An exit code is a decision and final, whatever it is. What ``progress``
    tells changes while the run gets on: only lives in a row that changed nothing, and were short,
    are counted. After :data:`LIVES` of them ``leave`` has the last word.
    """
    for number in (signal.SIGUSR2, signal.SIGHUP):  # they mean nothing here, and would end us
        signal.signal(number, signal.SIG_IGN)
    unheard: list[int] = []  # signals that came while there was no supervisor
    in_vain = 0
    for life in count(1):
        begun, before = time.monotonic(), progress()
        child = _start(supervise, life, unheard)
        status = _wait(child)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != EXIT_CRASHED:
            return os.WEXITSTATUS(status)
        long = time.monotonic() - begun > LONG_LIFE_S
        in_vain = 0 if long or progress() != before else in_vain + 1
        how = f"ended with status {os.waitstatus_to_exitcode(status)}"
        tell(f"the supervisor {how} (life {life}; {in_vain} in vain)")
        if in_vain == LIVES:
            break
        _pause(_FIRST_PAUSE_S * 2 ** max(0, in_vain - 1), unheard)
    return leave()


def _pause(seconds: float, unheard: Sequence[int]) -> None:
    """A signal ends the pause: whoever sent it does not wait for long."""
    over = time.monotonic() + seconds
    while not unheard and time.monotonic() < over:
        time.sleep(_TURN_S)


def _start(supervise: Callable[[int], int], life: int, unheard: list[int]) -> int:
    parent = os.getpid()
    # A signal between fork and the handlers of the child must not be lost, and must not end it: the
    # child itself lets them in, once it listens.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        os._exit(_live(supervise, life, parent))
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(child, number, unheard))
    while unheard:
        os.kill(child, unheard.pop())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def _live(supervise: Callable[[int], int], life: int, parent: int) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return EXIT_CRASHED
    try:
        return supervise(life)
    except BaseException:  # whatever it is, the parent must hear of it and the user must see it
        with contextlib.suppress(OSError):  # the job's output may be on a full disk
            traceback.print_exc()
        return EXIT_CRASHED
    finally:
        flush()


def _pass_on(child: int, number: int, unheard: list[int]) -> None:
    try:
        os.kill(child, number)
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    except (ProcessLookupError, ChildProcessError):
        pass
    unheard.append(number)  # also what a dead one took, of which we are yet to hear


def _wait(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return status
