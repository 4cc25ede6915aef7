"""The domain ``com.microsoft`` of onnxruntime."""

from __future__ import annotations

import functools

from popsr.bridge.onnx._rules import rule

__all__ = ["DOMAIN", "microsoft"]

DOMAIN = "com.microsoft"
microsoft = functools.partial(rule, domain=DOMAIN)
