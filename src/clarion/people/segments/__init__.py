"""Segments: the filter language, and the users that a filter selects."""
