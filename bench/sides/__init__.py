"""Sides that popsr is compared with, and the clock that times them by turns."""
