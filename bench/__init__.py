"""What is measured, against what, printed as a table with ratios."""
