"""Events and notifications over HTTP."""
