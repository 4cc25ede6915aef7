"""Steps of large sizes read at smaller ones at which they are the same program."""
