"""What tests of programs need."""
