"""Events, what became of them, and the inbox over HTTP."""
