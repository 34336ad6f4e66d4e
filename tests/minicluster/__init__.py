"""A real multi-host Slurm on one machine, for tests: see docs/minicluster.md."""
