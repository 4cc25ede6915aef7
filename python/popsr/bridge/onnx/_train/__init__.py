"""Training of models of ONNX: which weights train, and the step that changes them."""
