"""Masking: old tool results become one-line placeholders that can be brought back."""
