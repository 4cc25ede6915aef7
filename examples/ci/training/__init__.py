"""Training steps, each with the arguments that it is proved with; ``*_wrong.py`` have a planted bug."""
