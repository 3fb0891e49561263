"""API keys over HTTP, and who calls."""
