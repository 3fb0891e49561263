"""PostgreSQL: group commit on one connection, reads from a pool. For several nodes."""
