"""Building programs: an op is checked, appended whole or not at all, and knows its line and place."""
