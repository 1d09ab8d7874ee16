"""The optimizers, one per file. `objectaware.config.optimizer.OptimizerConfig` finds them."""
