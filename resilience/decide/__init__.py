"""Decisions only: events in, actions with their reasons out; standard library, no IO, no clock."""
