"""popsr.bridge.onnx: models read, run, trained and proved, and those that it refuses."""
