"""Devices that JAX plays on this machine."""

import os

__all__ = ["ask_for_host_devices"]

FLAG = "--xla_force_host_platform_device_count"


def ask_for_host_devices() -> None:
    """Ask for eight devices, unless a number is asked for; JAX reads that when it makes its first array."""
    if FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=8".strip()
