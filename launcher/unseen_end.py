"""The end of a run that no supervisor saw: whoever finds out writes it down, and tells people."""

from __future__ import annotations

import logging
import time
from typing import Final

from relight.resilience.decide.actions import Finish
from relight.resilience.supervise.standing import write_verdict

from .runs import StoredRun

_log: Final = logging.getLogger(__name__)


def write_unseen_end(run: StoredRun, order: Finish) -> None:
    """Writes the verdict, and tells as ``notify`` asks for, from this machine; once, for several
    may find out at the same time. Raises OSError: nobody is told of what is not written."""
    write_verdict(run.folder, order, time.time())
    if run.plan.config.notify is None:
        return
    try:
        (run.folder.root / "TOLD").touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return
    import asyncio

    from relight.resilience.supervise.notify import LIMIT_S, notify

    for told in asyncio.run(notify(run.plan.config, order, None, LIMIT_S)):
        if told.failure:
            _log.warning("relight: notify: the %s did not work: %s", told.by, told.failure)
