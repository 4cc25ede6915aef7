"""``conditional``: branches, masks, gradients, collectives inside."""
