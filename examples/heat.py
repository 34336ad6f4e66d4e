"""Heat flowing through a plate, spread over MPI ranks by rows, and survives.

    python examples/heat.py --steps 200                   # one process
    mpirun -n 4 python examples/heat.py --steps 200
    relight submit examples/heat.yaml

At the end it prints a digest of the whole field. It depends neither on the number of ranks nor on
how often the run was stopped, killed and restarted.
"""

from __future__ import annotations

import argparse
import hashlib
import time

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import relight

Field = NDArray[np.float64]
DIFFUSION = 0.2  # of 0.25 at most, or the explicit scheme explodes


def main() -> None:
    options = parse_options()
    run = relight.join()
    first, last = rows_of(run.rank, run.world_size, options.size)
    field = starting_field(first, last, options.size)

    # The halo rows belong to the neighbours. As a part of the plate, the field can be restored by
    # any number of ranks.
    run.protect(field=relight.Part(field[1:-1], (options.size, options.size), (first, 0)))
    for step in run.steps(options.steps):
        began_s = time.monotonic()
        with run.waiting():  # for the neighbours: that is not this rank's own time
            exchange_halos(field, run)
        diffuse(field)
        if run.rank == 0 and step % 10 == 0:
            print(f"step {step}", flush=True)
        time.sleep(max(0.0, options.step_time - (time.monotonic() - began_s)))

    parts = MPI.COMM_WORLD.gather(field[1:-1], root=0)
    if parts is not None:
        whole = np.concatenate(parts)
        print(f"digest {hashlib.sha256(whole.tobytes()).hexdigest()}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Let heat flow through a square plate.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=128, help="rows and columns of the plate")
    parser.add_argument(
        "--step-time", type=float, default=0.0, metavar="S", help="least duration of a step"
    )
    return parser.parse_args()


def rows_of(rank: int, world_size: int, size: int) -> tuple[int, int]:
    """The rows of a rank, [first, last): as even as they can be."""
    return rank * size // world_size, (rank + 1) * size // world_size


def starting_field(first: int, last: int, size: int) -> Field:
    """Rows of this rank between two halo rows: a hot square in the middle of a cold plate."""
    rows = np.arange(first - 1, last + 1)[:, np.newaxis]
    columns = np.arange(size)[np.newaxis, :]
    hot = (abs(rows - size // 2) < size // 8) & (abs(columns - size // 2) < size // 8)
    return np.where(hot, 100.0, 0.0)


def exchange_halos(field: Field, run: relight.Run) -> None:
    """Fills the halo rows with the neighbours' edges; beyond the plate they repeat its own edge."""
    world = MPI.COMM_WORLD
    above = run.rank - 1 if run.rank > 0 else MPI.PROC_NULL
    below = run.rank + 1 if run.rank < run.world_size - 1 else MPI.PROC_NULL
    field[0], field[-1] = field[1], field[-2]
    world.Sendrecv(field[1], dest=above, recvbuf=field[-1], source=below)
    world.Sendrecv(field[-2], dest=below, recvbuf=field[0], source=above)


def diffuse(field: Field) -> None:
    """One explicit step; no heat leaves through the left and right edges."""
    wide = np.pad(field[1:-1], ((0, 0), (1, 1)), mode="edge")
    neighbours = field[:-2] + field[2:] + wide[:, :-2] + wide[:, 2:]
    field[1:-1] += DIFFUSION * (neighbours - 4 * field[1:-1])


if __name__ == "__main__":
    main()
