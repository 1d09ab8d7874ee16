import pytest
import torch

from objectaware.training.pretraining import compile_networks
from training_fixtures import make_method


@pytest.mark.slow
def test_compiled_networks_compute_the_same_under_the_same_names() -> None:
    plain, compiled = make_method("moco"), make_method("moco")
    calls = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        calls.append(graph)
        return graph.forward

    compile_networks(compiled, backend=backend)
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(2, 4, 3, 32, 32, generator=generator)
    for method in (plain, compiled):
        method(views).backward()
    assert len(calls) >= 4
    assert plain.state_dict().keys() == compiled.state_dict().keys()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad)
