"""Checks of GPUs, through NVIDIA's management library."""
