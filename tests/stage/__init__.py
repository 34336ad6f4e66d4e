"""The stage on which whole runs are tried: the mini cluster, runs submitted to it, and faults."""
