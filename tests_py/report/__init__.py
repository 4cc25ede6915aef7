"""Reports of programs: their pages, texts and commands."""
