"""Checks of nodes before and between starts."""
