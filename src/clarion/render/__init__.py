"""A template and what happened → words. Sandboxed, bounded, and pure."""
