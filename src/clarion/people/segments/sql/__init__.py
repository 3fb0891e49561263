"""Segments in SQL: their table, and how a filter is looked up."""
