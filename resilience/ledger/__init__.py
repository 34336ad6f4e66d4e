"""What is known against nodes, across runs and users."""
