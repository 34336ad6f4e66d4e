"""Stand-ins for what checks look at."""
