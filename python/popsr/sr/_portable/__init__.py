"""Rounding and its noise in array operations, with the bits of the core: for devices, and for compilers to fuse."""
