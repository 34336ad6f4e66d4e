"""What survives: checkpoint bytes, commits, and the choice of the newest valid one."""
