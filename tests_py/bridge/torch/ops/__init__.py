"""Each overload of ATen that has a rule, against torch."""
