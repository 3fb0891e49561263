"""Clarion: a self-hosted notification platform."""

__version__ = "0.1.0"
