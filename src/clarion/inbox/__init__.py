"""What a person has been told and does with it → the same on all of their screens, at once."""
