"""Views of tensors: shared memory, gradients, refused arguments."""
