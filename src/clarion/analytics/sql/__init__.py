"""Analytics in SQL."""
