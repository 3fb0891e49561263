"""Users, preferences and follows over HTTP."""
