"""The database engines: group commit, reads and migrations on SQLite and PostgreSQL."""
