"""The loop inside the batch script that carries decisions out."""
