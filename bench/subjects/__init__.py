"""What is measured, one file a subject: a function that gives the rows of the table."""
