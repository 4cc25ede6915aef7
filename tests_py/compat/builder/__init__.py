"""``popart.Builder``: ops of models, and sessions that train them."""
