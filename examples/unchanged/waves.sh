#!/bin/bash
# An MPI program with restart files of its own:  mpicc -O2 -o waves waves.c -lm && relight sbatch waves.sh
#SBATCH --nodes=2 --ntasks-per-node=2 --time=1:00:00 --output=waves.out
#RELIGHT checkpoint.signal: USR1
#RELIGHT checkpoint.done: waves.done
#RELIGHT resume: ./waves-continue.sh

# exec: the signal for the script is then one for srun, which passes it on to all ranks. At preemption
# Slurm itself sends SIGTERM to them; the program does not know it and would end before it has saved.
exec srun --mpi=pmix sh -c 'trap "" TERM; exec ./waves "$1"' waves "${STEPS:-100000}"
