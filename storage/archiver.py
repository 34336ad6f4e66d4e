"""The process that speaks with an archive; its answer is the last line that it prints, JSON.

python -m relight.storage.archiver put DIRECTORY URL STEP LAST
python -m relight.storage.archiver get DIRECTORY URL EPOCH
python -m relight.storage.archiver drop DIRECTORY URL STEP
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from relight.answer import give

from .archive import drop, put, thin
from .child import end_with_parent
from .errors import NoValidCheckpoint
from .fetch import fetch
from .objects import connect


def answer(job: str, directory: Path, url: str, numbers: Sequence[int]) -> dict[str, object]:
    """What came of it. Raises whatever goes wrong."""
    store = connect(url)
    if job == "put":
        step, last = numbers
        size_bytes = put(directory, step, store)
        thin(store, last, step)
        return {"step": step, "bytes": size_bytes}
    (number,) = numbers
    if job == "drop":
        drop(store, number)
        return {}
    manifest = fetch(directory, store, number)
    if manifest is None:
        return {"step": None, "bytes": 0}
    return {"step": manifest.step, "bytes": manifest.payload_bytes}


def main() -> None:
    job, directory, url, *numbers = sys.argv[1:]
    # A supervisor that is killed has a successor, which asks again.
    end_with_parent()
    if job == "put":
        os.nice(10)  # the program's steps come first
    begun = time.monotonic()
    try:
        said = answer(job, Path(directory), url, [int(number) for number in numbers])
    except NoValidCheckpoint as error:
        said = {"damaged": error.reasons}
    except Exception as error:  # a store's library raises anything; all of it is for the journal
        said = {"failure": f"{type(error).__name__}: {error}"}
    give(json.dumps({**said, "seconds": time.monotonic() - begun}))


if __name__ == "__main__":
    main()
