"""Types and templates in SQL."""
