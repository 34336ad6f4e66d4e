#!/bin/bash
# Made by relight 0.1.0: relight plan job.yaml
#SBATCH --job-name=lm-0a1b2c
#SBATCH --nodes=5
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --gpus-per-node=2
#SBATCH --mem=8192M
#SBATCH --time=04:00:00
#SBATCH --partition=low
#SBATCH --chdir=/home/u/work
#SBATCH --output=/home/u/.relight/runs/lm-0a1b2c/attempts/%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --signal=B:USR1@60
#SBATCH --account=abc
#SBATCH --constraint='h100&ib'
#SBATCH --exclusive

trap '' USR1

(/opt/venv/bin/python -m relight.launcher.clusters.slurm.wardens_of_setup /home/u/.relight/runs/lm-0a1b2c < /dev/null > /dev/null 2>&1 &)
relight_output_bytes=$(stat -L -c %s /proc/self/fd/1)
relight_ask() {
    (trap '' TERM INT; exec /opt/venv/bin/python -m relight.launcher.leave /home/u/.relight/runs/lm-0a1b2c "$1" "$relight_output_bytes") ||
        exit "$?"
}
trap 'relight_ask SIGTERM' TERM
trap 'relight_ask SIGINT' INT

relight_check_setup() {
    [ "$1" -eq 0 ] && return
    relight_ask failure
    echo "relight: line $2 of setup failed with exit code $1; the run stops" >&2
    printf '{"state": "FAILED", "exit_code": 1, "cause": "setup", "reason": "line %d of setup failed with exit code %d", "tail": [], "time": %d}\n' \
        "$2" "$1" "$(date +%s)" > /home/u/.relight/runs/lm-0a1b2c/verdict.json
    exit 1
}
module load cuda
relight_check_setup "$?" 1
source venv/bin/activate
relight_check_setup "$?" 2

trap '' TERM
exec /opt/venv/bin/python -m relight.launcher.supervise /home/u/.relight/runs/lm-0a1b2c
