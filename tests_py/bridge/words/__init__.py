"""Words of proofs: axes of meshes, one line for one mistake, lines and scopes of the user."""
