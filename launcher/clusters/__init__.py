"""The places where a run can live: a Slurm cluster, or this machine."""
