"""Updates of variables and optimisers."""
