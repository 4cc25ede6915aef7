"""A decoder that generates text with a key/value cache: tensor parallel, its weights whole or of four bits."""
