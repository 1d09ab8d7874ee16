"""The stages: pretrain, localize, evaluate, and the demo's study of them. Identity, lease, reuse and records live here."""
