"""Takes copies of other nodes' shards into the tier of this node, for its agent.

A copy is what any shard of the tier is: it counts when its receipt is there, which follows once
every byte is right. Standard input is a socket to the agent: the key comes over it first; then this
process says its port, and each copy that it has taken.

python -m relight.storage.depot TIER SHARE_BYTES
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from relight.errors import RelightError

from .child import end_with_parent
from .commit import read_receipt
from .condition import shard_fault
from .durable import make_dirs, publish
from .errors import CheckpointDamaged, CopyRefused, PartnerUnknown
from .layout import receipt_path, shard_path, step_dir
from .partner_line import PartnerLine
from .read_shard import require_whole
from .receipt import Receipt
from .send import SILENCE_S
from .tier import drop_older, drop_unfinished, in_spite_of_removals, remove, room_bytes
from .tier_folder import make_private

_AT_ONCE: Final = 8
_STRANGERS: Final = 64  # connections that have proven nothing yet
_PROOF_S: Final = 5.0  # what that may take them
_BUFFER_BYTES: Final = 4 << 20


def take(line: PartnerLine, tier: Path, share_bytes: int) -> Receipt:
    """The receipt of a copy that is here, whole; at most `share_bytes` of each rank are.

    Raises OSError, CheckpointDamaged, CopyRefused, PartnerUnknown, ValueError.
    """
    receipt = Receipt.from_json(str(line.hear().get("receipt")))
    try:
        make_private(tier)
        if _is_here(tier, receipt):
            line.say({"answer": "have"})
            return receipt
        drop_unfinished(tier, receipt)  # who sends it now is the one to have it from
        _require_room(tier, receipt, share_bytes)
        line.say({"answer": "send"})
        _receive(line.connection, tier, receipt)
    except (OSError, CheckpointDamaged, CopyRefused) as error:
        with suppress(OSError):  # the fault itself is what counts
            line.say({"refused": _why(error)})
        raise
    with suppress(OSError):  # what stays takes room; the copy is what counts
        drop_older(tier, receipt)
    line.say({"answer": "took"})
    return receipt


def _why(error: OSError | CheckpointDamaged | CopyRefused) -> str:
    match error:
        case CheckpointDamaged():  # it is no checkpoint, for anybody to set aside
            return f"the copy is damaged at {error.array}: {error.reason}"
        case CopyRefused():
            return error.reason
        case _:
            return str(error)


def _is_here(tier: Path, receipt: Receipt) -> bool:
    path = receipt_path(tier, receipt.step, receipt.incarnation, receipt.rank)
    return read_receipt(path) == receipt and not shard_fault(step_dir(tier, receipt.step), receipt)


def _require_room(tier: Path, receipt: Receipt, share_bytes: int) -> None:
    room = room_bytes(tier, receipt.rank, share_bytes)
    if receipt.size_bytes > room:
        raise CopyRefused(f"a copy takes {receipt.size_bytes} bytes, and {max(0, room)} are left")


def _receive(connection: socket.socket, tier: Path, receipt: Receipt) -> None:
    step, writer, rank = receipt.step, receipt.incarnation, receipt.rank
    shard = shard_path(tier, step, writer, rank)
    # Another connection may bring the same, or have brought it: what is whole is the same bytes.
    copy = shard.with_name(f"{shard.name}.{secrets.token_hex(8)}")
    try:
        with in_spite_of_removals(lambda: _opened(copy, tier)) as file:
            _fill(file, connection, receipt.size_bytes)
        require_whole(copy, receipt)
        copy.replace(shard)
        publish(receipt_path(tier, step, writer, rank), receipt.to_json().encode("ascii"))
    finally:
        with suppress(OSError):  # what stays is harmless
            remove(copy)


def _opened(copy: Path, tier: Path) -> BinaryIO:
    make_dirs(copy.parent, tier)
    return copy.open("wb")


def _fill(file: BinaryIO, connection: socket.socket, size_bytes: int) -> None:
    buffer = memoryview(bytearray(min(_BUFFER_BYTES, size_bytes)))
    while size_bytes:
        got = connection.recv_into(buffer, min(len(buffer), size_bytes))
        if not got:
            raise ConnectionResetError("the connection has ended in the middle of a shard")
        file.write(buffer[:got])
        size_bytes -= got


class _Depot:
    """One thread for each connection, and bounds on their number.

    The places for copies are for those that have proven the key: nobody else can hold one. Of too
    many others the one that has waited longest goes.
    """

    def __init__(self, agent: socket.socket, key: bytes, tier: Path, share_bytes: int) -> None:
        self._agent = agent
        self._key = key
        self._tier = tier
        self._share_bytes = share_bytes
        self._strangers: dict[socket.socket, None] = {}  # in the order in which they came
        self._meeting = threading.Lock()
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._has_met_a_stranger = False
        self._telling = threading.Lock()

    def serve(self, server: socket.socket) -> None:
        self._tell({"type": "depot", "port": server.getsockname()[1]})
        while True:
            connection, _ = server.accept()
            self._meet(connection)
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        with self._meeting:
            self._strangers[connection] = None
            if len(self._strangers) > _STRANGERS:
                longest = next(iter(self._strangers))
                del self._strangers[longest]
                with suppress(OSError):  # its own thread ends it, once nothing comes any more
                    longest.shutdown(socket.SHUT_RDWR)

    def _attend(self, connection: socket.socket) -> None:
        with connection:
            line = self._line(connection)
            if line is not None:
                with self._places:
                    self._take(line)

    def _line(self, connection: socket.socket) -> PartnerLine | None:
        """None to a stranger."""
        connection.settimeout(SILENCE_S)
        try:
            return PartnerLine(connection, self._key, caller=False, within_s=_PROOF_S)
        except (OSError, PartnerUnknown) as error:
            with self._meeting:
                told, self._has_met_a_stranger = self._has_met_a_stranger, True
            if not told:  # others could fill the log
                sys.stderr.write(f"relight: somebody else calls the port for copies: {error}\n")
            return None
        finally:
            with self._meeting:
                self._strangers.pop(connection, None)

    def _take(self, line: PartnerLine) -> None:
        try:
            receipt = take(line, self._tier, self._share_bytes)
            took = {"type": "took", "step": receipt.step, "rank": receipt.rank}
            self._tell({**took, "writer": receipt.incarnation.folder})
        except (OSError, RelightError, ValueError) as error:
            # Whoever has sent it was told, if it is still there.
            sys.stderr.write(f"relight: no copy for a partner was taken: {error}\n")

    def _tell(self, word: dict[str, object]) -> None:
        with self._telling:
            self._agent.sendall(json.dumps(word).encode() + b"\n")


def listening_socket() -> socket.socket:
    """One port for both families, on all addresses of this host."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def main() -> None:
    tier, share_bytes = Path(sys.argv[1]), int(sys.argv[2])
    end_with_parent()
    os.nice(10)  # the program's steps come first
    agent = socket.socket(fileno=0)
    key = agent.makefile("rb").readline().strip()
    with listening_socket() as server:
        _Depot(agent, key, tier, share_bytes).serve(server)


if __name__ == "__main__":
    main()
