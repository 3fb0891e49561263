"""Templates rendered in a sandbox."""
