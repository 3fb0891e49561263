"""Apps, their keys and tickets over HTTP."""
