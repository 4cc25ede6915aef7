"""An encoder and a decoder with relative position bias: teacher forcing, and generation from a kept encoding."""
