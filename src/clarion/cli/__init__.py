"""The `clarion` command: one file for each command."""
