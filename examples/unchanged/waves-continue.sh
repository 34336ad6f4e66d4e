#!/bin/bash
# As waves.sh, from the restart files. Run in its place once they are there.
exec srun --mpi=pmix sh -c 'trap "" TERM; exec ./waves "$1" restart' waves "${STEPS:-100000}"
