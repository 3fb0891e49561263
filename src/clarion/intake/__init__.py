"""What a caller says happened → an event that can be accepted, or every fault of it by field."""
