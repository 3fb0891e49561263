"""The `clarion` command, a file a noun."""
