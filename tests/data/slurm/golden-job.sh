#!/bin/bash
# Made by relight 0.1.0: relight plan job.yaml
#SBATCH --job-name=lm-0a1b2c
#SBATCH --nodes=5
#SBATCH --cpus-per-task=4
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

export SLURM_NTASKS_PER_NODE=2 SLURM_CPUS_PER_TASK=2
SLURM_TRES_PER_TASK=${SLURM_TRES_PER_TASK/cpu:4/cpu:2}
SLURM_TRES_PER_TASK=${SLURM_TRES_PER_TASK/cpu=4/cpu=2}

trap '' USR1

(/opt/venv/bin/python -P -m relight.launcher.clusters.slurm.wardens_of_setup /home/u/.relight/runs/lm-0a1b2c < /dev/null > /dev/null 2>&1 &)
relight_output_bytes=$(stat -L -c %s /proc/self/fd/1)
relight_ask() {
    (trap '' TERM INT; exec /opt/venv/bin/python -P -m relight.launcher.leave /home/u/.relight/runs/lm-0a1b2c "$1" "$relight_output_bytes") || {
        relight_code=$?
        trap - EXIT
        exit "$relight_code"
    }
}
trap 'relight_ask SIGTERM' TERM
trap 'relight_ask SIGINT' INT

relight_end_setup() {
    trap - EXIT
    relight_ask failure
    relight_reason="line $relight_line of setup $2 with exit code $1"
    echo "relight: $relight_reason; the run stops" >&2
    relight_verdict=/home/u/.relight/runs/lm-0a1b2c/verdict.json
    printf '{"state": "FAILED", "exit_code": 1, "cause": "setup", "reason": "%s", "tail": [], "time": %d}\n' \
        "$relight_reason" "$(date +%s)" > "$relight_verdict.$$" && mv "$relight_verdict.$$" "$relight_verdict"
    exit 1
}
relight_check_setup() {
    [ "$1" -eq 0 ] || relight_end_setup "$1" failed
}
trap 'relight_end_setup "$?" "ended the script"' EXIT
relight_line=1
module load cuda
relight_check_setup "$?"
relight_line=2
source venv/bin/activate
relight_check_setup "$?"
trap - EXIT

trap '' TERM
exec /opt/venv/bin/python -P -m relight.launcher.supervise /home/u/.relight/runs/lm-0a1b2c
