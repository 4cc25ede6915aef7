"""Checkpoints as initializers of an ONNX model, and Protobuf's wire format."""
