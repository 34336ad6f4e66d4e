"""Checks of GPUs, through NVIDIA's or AMD's management library."""
