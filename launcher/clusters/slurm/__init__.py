"""Slurm: commands built and output parsed by pure functions, and one client that runs them."""
