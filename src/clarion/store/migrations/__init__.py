"""Numbered SQL files, applied under a lock, safe to interrupt and repeat."""
