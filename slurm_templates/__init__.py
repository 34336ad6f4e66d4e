"""The batch scripts, as data (Jinja2); each line says why it is there."""
