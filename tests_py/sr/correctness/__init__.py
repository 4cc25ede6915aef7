"""Each decision of ``popsr.sr`` beside the oracle in fractions."""
