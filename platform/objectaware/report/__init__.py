"""Drawn and printed results: figures, text tables, and the gallery of a localization."""
