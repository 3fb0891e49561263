"""Apps, keys and administrators in SQL."""
