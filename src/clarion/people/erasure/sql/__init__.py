"""Deletion, erasure and export in SQL."""
