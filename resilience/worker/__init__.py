"""The side of the ranks: the agent around each task, and the API that programs use."""
