"""What keeps a run alive: decisions, supervision, health, and the rank's side."""
