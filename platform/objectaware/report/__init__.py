"""Everything that is drawn or printed: figures, text tables, the gallery of a localization."""
