"""Numbered SQL files → an up-to-date database. Applied under a lock, safe to interrupt and repeat."""
