"""What people and Slurm touch: spec, plan, submission, clusters, command line, reports."""
