"""Deleting, restoring, erasing and exporting users."""
