"""Tests that make a node work, one after another: they cost seconds, and see what idling hides."""
