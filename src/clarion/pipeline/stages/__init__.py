"""What is done with an event, one file a stage; the package's own page has the order."""
