"""Units of statements → durable rows. One set of SQL for SQLite and PostgreSQL."""
