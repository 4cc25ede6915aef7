"""Building programs: graphs, names, contexts, order, gradients."""
