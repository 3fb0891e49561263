"""The documentation as pages of the server: Markdown, rendered when asked for, and search."""
