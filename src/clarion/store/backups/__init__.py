"""Backups: a consistent copy of a database in one file, and how it is restored."""
