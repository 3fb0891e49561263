"""The pages of the dashboard, a file for each noun, each ending in a tuple `PAGES`."""
