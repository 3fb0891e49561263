"""Copies a SQLite database into PostgreSQL: in batches, resumable, and verified."""
