"""Members of classes of the core that this room has, see ``popsr._support.extensions``."""

__all__ = ["MEMBERS"]

MEMBERS = {"Session.reset_host_weights": "_reset:reset_host_weights"}
