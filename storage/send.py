"""Copies one shard from a node's tier into that of another node, where a depot takes it.

The key is read from standard input: it stands in no command line and no environment.

python -m relight.storage.send TIER STEP ATTEMPT.gGENERATION RANK HOST PORT
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from relight.answer import give
from relight.errors import RelightError

from .child import end_with_parent
from .commit import read_receipt
from .errors import CopyRefused, PartnerUnknown
from .layout import Incarnation, receipt_path, shard_path
from .partner_line import PartnerLine

SILENCE_S: Final = 30.0  # that a network moves nothing
_CHECK_S: Final = 600.0  # the other end reads all that it has got before it says the last word


def send(
    tier: Path, step: int, writer: Incarnation, rank: int, address: tuple[str, int], key: bytes
) -> None:
    """Returns once the other node has the shard, whole and verified.

    Raises OSError, CopyRefused, PartnerUnknown.
    """
    path = receipt_path(tier, step, writer, rank)
    receipt = read_receipt(path)
    if receipt is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    # Opened first: once two newer ones are there, the rank's own copy loses its name.
    with (
        shard_path(tier, step, writer, rank).open("rb") as shard,
        socket.create_connection(address, timeout=SILENCE_S) as connection,
    ):
        line = PartnerLine(connection, key, caller=True, within_s=SILENCE_S)
        line.say({"receipt": receipt.to_json()})
        if _answer(line, "have", "send") == "send":
            try:
                connection.sendfile(shard, count=receipt.size_bytes)
            except OSError:
                with suppress(OSError, PartnerUnknown):  # why it has hung up, if it has said so
                    _answer(line)
                raise
            connection.settimeout(_CHECK_S)
            _answer(line, "took")


def _answer(line: PartnerLine, *expected: str) -> str:
    word = line.hear()
    answer = word.get("answer")
    if answer not in expected:
        raise CopyRefused(str(word.get("refused", word)))
    return str(answer)


def main() -> None:
    tier, step, writer = Path(sys.argv[1]), int(sys.argv[2]), Incarnation.parse(sys.argv[3])
    rank, address = int(sys.argv[4]), (sys.argv[5], int(sys.argv[6]))
    end_with_parent()
    os.nice(10)  # the program's steps come first
    answer: dict[str, object] = {}
    try:
        send(tier, step, writer, rank, address, sys.stdin.buffer.read())
    except (OSError, RelightError) as error:
        answer = {"reason": str(error), "errno": getattr(error, "errno", None)}
    give(json.dumps(answer))


if __name__ == "__main__":
    main()
