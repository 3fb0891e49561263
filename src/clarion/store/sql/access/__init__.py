"""Apps, keys, administrators, and what happens once."""
