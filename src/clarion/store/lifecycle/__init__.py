"""What is done with the rows of all tables, as their declarations say."""
