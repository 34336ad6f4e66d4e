"""A world of one over NCCL, killed in the midst of its work and formed anew on the same port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from rows import missing, tell

READY = "ready"


def main() -> None:
    if len(sys.argv) > 1:
        rank(sys.argv[1])
        return
    if missing("torch"):
        sys.exit("no world without torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    first, first_s, backend = form(port)
    os.kill(first.pid, signal.SIGKILL)
    killed = time.perf_counter()
    first.wait()
    second, second_s, _ = form(port)
    back_s = time.perf_counter() - killed
    second.kill()
    second.wait()
    tell(
        [
            ("first world", f"{first_s:.2f} s", f"{backend}, from the start of Python to a sum"),
            ("second world", f"{second_s:.2f} s", "likewise, on the same port"),
            (
                "from the kill to the sum",
                f"{back_s:.2f} s",
                "the GPU was the first one's until it died",
            ),
        ]
    )


def form(port: str) -> tuple[subprocess.Popen[str], float, str]:
    """A rank that has added up once and goes on, how long that took, and by which backend."""
    started = time.perf_counter()
    command = [sys.executable, str(Path(__file__).resolve()), port]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return process, time.perf_counter() - started, line.split()[1]
    sys.exit(f"a rank ended with {process.wait()} before its first sum")


def rank(port: str) -> None:
    """Add up until killed."""
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    backend = "nccl" if gpu else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    numbers = torch.ones(1024, device="cuda" if gpu else "cpu")
    while True:
        dist.all_reduce(numbers)
        assert bool((numbers == 1).all())
        print(READY, backend, flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
