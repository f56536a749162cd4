"""Resize images with the bits of Pillow, in compiled loops."""
