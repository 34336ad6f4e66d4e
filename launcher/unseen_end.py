"""The end of a run that no supervisor saw: whoever finds out writes it down, and tells people."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from relight.resilience.decide.actions import Finish
from relight.resilience.supervise.standing import write_verdict

from .runs import StoredRun

_log: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 8  # of the processes that tell
Ends = Sequence[tuple[StoredRun, Finish]]


def write_unseen_end(run: StoredRun, order: Finish) -> None:
    """Writes the verdict, and tells of it. Raises OSError: nobody is told of what is not
    written."""
    write_verdict(run.folder, order, time.time())
    tell_of_ends([(run, order)])


def tell_of_ends(ends: Ends) -> None:
    """Tells as ``notify`` asks for, from this machine; of each end once, for several may find out
    at the same time. What does not work for some runs of a sweep is not tried for the rest."""
    untold = [end for end in ends if end[0].plan.config.notify is not None and _is_untold(end[0])]
    if not untold:
        return
    import asyncio

    asyncio.run(_tell(untold))


def _is_untold(run: StoredRun) -> bool:
    try:
        (run.folder.root / "TOLD").touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


async def _tell(ends: Ends) -> None:
    from asyncio import gather

    from relight.resilience.supervise.notify import LIMIT_S, notify

    for first in range(0, len(ends), _AT_ONCE):
        some = ends[first : first + _AT_ONCE]
        answers = await gather(*(notify(r.plan.config, o, None, LIMIT_S) for r, o in some))
        failed = {(told.by, told.failure) for answer in answers for told in answer if told.failure}
        for by, failure in failed:
            _log.warning("relight: notify: the %s did not work: %s", by, failure)
        if failed:
            return
