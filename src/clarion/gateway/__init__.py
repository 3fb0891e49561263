"""Devices' connections ↔ messages. Sockets, their protocol, and what is stored for those away."""
