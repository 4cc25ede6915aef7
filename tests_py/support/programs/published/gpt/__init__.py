"""A decoder for text: tensor parallel over four replicas, data parallel over two."""
