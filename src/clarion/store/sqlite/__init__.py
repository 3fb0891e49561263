"""SQLite: a writer process of our own, readers in the server. The default."""
