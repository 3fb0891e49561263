"""Numbered SQL files → an up-to-date database, under a lock, safe to interrupt and repeat."""
