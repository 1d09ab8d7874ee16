"""Data sets, image decoding, the manifest that fixes a run's inputs, and storage for its outputs."""
