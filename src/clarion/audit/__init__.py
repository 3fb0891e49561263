"""The audit log: who did what, when, where and with which result, in a chain of signed entries."""
