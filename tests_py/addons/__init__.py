"""``popsr.addons``."""
