"""What is measured, one file a subject: a function that yields the rows of the table."""
