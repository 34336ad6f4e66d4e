"""Byte shuffle and zstd, as HDF5's filters 2 and 32015 have them.

Bytes of equal weight come together: sign and exponent of weights are much alike, and get short; the
rest of the mantissa is noise, and stays. zstandard and numpy are imported by who has something to
compress or to read.
"""

from __future__ import annotations

from typing import Final

from .errors import CodecMissing

SHUFFLE: Final = 2
ZSTD: Final = 32015
# Level 3 takes twice the time and finds less: after the shuffle there is entropy, and no matches.
LEVEL: Final = 1
_LEAST_WINDOW_BYTES: Final = 1024  # less is no window to zstd


def require() -> None:
    """Raises CodecMissing where nothing can be compressed, nor read again."""
    try:
        import zstandard  # noqa: F401
    except ImportError as error:
        raise CodecMissing from error


def pack(data: bytes | bytearray, width: int) -> bytes:
    """A chunk for the two filters; its length has to be a multiple of the width."""
    require()
    import numpy as np
    import zstandard

    planes = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(-1, width).T)
    return zstandard.ZstdCompressor(level=LEVEL).compress(planes.data)


def unpack(packed: memoryview, chunk_bytes: int, width: int, target: memoryview) -> None:
    """The first bytes of a chunk, as many as `target` has: a multiple of the width.

    Takes no more memory than the chunk, whatever the bytes say. Raises ValueError, CodecMissing.
    """
    require()
    import numpy as np
    import zstandard

    try:
        if zstandard.frame_content_size(packed) != chunk_bytes:
            raise ValueError("it is not as long as it has to be")
        window_bytes = max(chunk_bytes, _LEAST_WINDOW_BYTES)
        unpacked = zstandard.ZstdDecompressor(max_window_size=window_bytes).decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    planes = np.frombuffer(unpacked, np.uint8).reshape(width, -1)
    elements = np.frombuffer(target, np.uint8).reshape(-1, width)
    for place, plane in enumerate(planes):
        elements[:, place] = plane[: len(elements)]
