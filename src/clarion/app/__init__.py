"""The composition of a node: what it consists of, and the order in which it starts and stops."""
