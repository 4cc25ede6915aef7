"""Sessions of several processes: ranks find each other, compare programs and calls, and exchange values."""
