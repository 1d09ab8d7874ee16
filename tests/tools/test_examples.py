"""The examples that compare two commits are command lines that the program takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from examples import Example, examples
from objectaware.commands.registry import all_subcommands


@pytest.mark.parametrize("example", [pytest.param(one, id=one.name) for one in examples()])
def test_an_example_is_parsed(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if example.recipe is not None:
        (tmp_path / f"{example.name}.yaml").write_text(yaml.safe_dump(dict(example.recipe)))
    words = list(example.words)
    known = all_subcommands()
    length = max(number for number in (1, 2, 3) if " ".join(words[:number]) in known)
    parse = known[" ".join(words[:length])].parse
    arguments = [*words[length:], *(["--json", "out.json"] if example.writes_json else [])]
    assert callable(parse(f"objectaware {' '.join(words[:length])}", arguments))
