"""The HTTP front: requests, errors, routing, documentation, listeners."""
