"""Benchmarks of models of ONNX."""
