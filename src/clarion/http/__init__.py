"""HTTP: listeners, the front, routing, errors, documentation."""
