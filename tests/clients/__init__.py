"""The client libraries, each driven in a process of its own."""
