"""Notification types, built-in and defined by apps, and their templates."""
