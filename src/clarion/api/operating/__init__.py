"""Health, metrics and the pages of the API."""
