"""Devices, what is sent to them, and the topics they hear."""
