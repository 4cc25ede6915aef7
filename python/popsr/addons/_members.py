"""Functions that rooms below this one use, see ``popsr._support.extensions``."""

__all__ = ["MEMBERS"]

MEMBERS = {"rotary_pos_embed": "ops.rotary_pos_embed:rotary_pos_embed"}
