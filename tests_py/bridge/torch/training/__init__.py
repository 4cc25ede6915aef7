"""Training code as people write it, with the libraries that they use: read unchanged, and run on real ranks."""
