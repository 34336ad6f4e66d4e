"""The parts of scripts/gpu_check: each a program that prints its rows as JSON in its last line."""
