"""What every object store must do for an archive, and a real server of one kind.

python tests/stage/objects.py URL FOLDER
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from relight.storage.objects import Objects, connect

BUCKET = "relight-test"


@contextlib.contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """Serves S3 on this machine; the environment that finds it, with an empty bucket."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    reading = threading.Thread(target=process.stderr.read)
    try:
        address = next(found[0] for line in process.stderr if (found := _address(line)))
        reading.start()  # it tells of each request, and would wait for somebody to read that
        env = {
            **os.environ,
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        make = "import sys, s3fs; s3fs.S3FileSystem().mkdir(sys.argv[1])"
        subprocess.run([sys.executable, "-P", "-c", make, BUCKET], env=env, check=True, timeout=60)
        yield env
    finally:
        process.kill()
        if reading.is_alive():
            reading.join()
        process.communicate()


def _address(line: str) -> list[str]:
    return re.findall(r"Running on (http://127\.0\.0\.1:\d+)", line)


def keeps_its_word(store: Objects, folder: Path) -> None:
    """The contract, on an address where nothing is yet."""
    assert store.names("") == []
    source, target = folder / "source", folder / "target"
    source.write_bytes(os.urandom(6 << 20))  # more than one part of an upload
    shard, manifest = "000000000001/1.0.g0/shard-00000.h5", "000000000001/MANIFEST.json"
    store.upload(source, shard)
    assert store.names("") == ["000000000001"]
    assert store.size_bytes(shard) == 6 << 20
    store.download(shard, target)
    assert target.read_bytes() == source.read_bytes()
    assert store.write_new(manifest, b"one")
    assert not store.write_new(manifest, b"two")
    assert store.read(manifest) == b"one"
    assert store.names("000000000001") == ["1.0.g0", "MANIFEST.json"]
    store.remove(manifest)
    assert store.names("000000000001") == ["1.0.g0"]
    store.remove("000000000001")
    assert store.names("") == []
    for ask in (store.read, store.size_bytes, store.remove):
        try:
            ask(manifest)
        except FileNotFoundError:
            continue
        raise AssertionError(f"{ask} of nothing")


if __name__ == "__main__":
    keeps_its_word(connect(sys.argv[1]), Path(sys.argv[2]))
