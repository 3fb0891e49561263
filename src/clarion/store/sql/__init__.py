"""The store ports in SQL that both engines run: one file a port."""
