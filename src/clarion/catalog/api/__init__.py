"""Types and templates over HTTP."""
