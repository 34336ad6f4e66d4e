"""What ``scripts/quickstart`` does once relight is installed."""
