"""Other shapes and parts of tensors."""
