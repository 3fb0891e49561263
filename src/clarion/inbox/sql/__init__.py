"""Inboxes in SQL."""
