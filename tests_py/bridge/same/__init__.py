"""Steps beside one device."""
