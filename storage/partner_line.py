"""Words between two processes that know one key, over a connection that anybody may have made.

Both ends choose a number for each connection, so what was said over one is nothing over another.
Each proves that it knows the key before anything is said or believed. Words are authenticated, not
hidden. The bytes of a shard go beside them; its digests speak for it.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from typing import Final

from .errors import PartnerUnknown

_LENGTH: Final = struct.Struct("!I")
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_MOST_BYTES: Final = 4 * 1024**2  # of a word: rank 0's receipt lists packages


class PartnerLine:
    """One end of a connection. All raise OSError, and PartnerUnknown when the other has no key.

    That has to be proven `within_s`, in whatever pieces it comes. Afterwards the timeout of the
    connection holds.
    """

    def __init__(
        self, connection: socket.socket, key: bytes, *, caller: bool, within_s: float
    ) -> None:
        self.connection = connection
        self._caller = caller
        silence_s = connection.gettimeout()
        self._prove_by_s: float | None = time.monotonic() + within_s
        self._counts = {True: 0, False: 0}  # words of the caller, and of the one who was called
        own = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(own)
        other = self._exactly(_NONCE_BYTES)
        nonces = own + other if caller else other + own
        self._key = hmac.digest(key, b"relight partner" + nonces, "sha256")
        connection.sendall(self._proof(b"", by_caller=caller))
        self._require_proof(b"")
        self._prove_by_s = None
        connection.settimeout(silence_s)

    def say(self, word: Mapping[str, object]) -> None:
        data = json.dumps(word).encode()
        proof = self._proof(data, by_caller=self._caller)
        self.connection.sendall(_LENGTH.pack(len(data)) + data + proof)

    def hear(self) -> dict[str, object]:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _MOST_BYTES:
            raise PartnerUnknown(f"it says a word of {length} bytes")
        data = self._exactly(length)
        self._require_proof(data)
        word: dict[str, object] = json.loads(data)
        return word

    def _require_proof(self, data: bytes) -> None:
        expected = self._proof(data, by_caller=not self._caller)
        if not hmac.compare_digest(self._exactly(_PROOF_BYTES), expected):
            raise PartnerUnknown("it does not know the token of this attempt")

    def _proof(self, data: bytes, *, by_caller: bool) -> bytes:
        place = f"{by_caller}{self._counts[by_caller]} ".encode()
        self._counts[by_caller] += 1
        return hmac.digest(self._key, place + data, "sha256")

    def _exactly(self, size_bytes: int) -> bytes:
        found = b""
        while len(found) < size_bytes:
            if self._prove_by_s is not None:
                left_s = self._prove_by_s - time.monotonic()
                if left_s <= 0:
                    raise PartnerUnknown("it takes too long to prove that it knows the token")
                self.connection.settimeout(left_s)
            more = self.connection.recv(size_bytes - len(found))
            if not more:
                raise ConnectionResetError("the other end has closed the connection")
            found += more
        return found
