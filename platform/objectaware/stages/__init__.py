"""The stages of a study. Identity, lease, reuse and records live here."""
