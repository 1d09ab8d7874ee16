"""The optimizers, one per file. `objectaware.config.variants.OptimizerConfig` finds them."""
