"""People: who they are, and what they want to hear."""
