"""YAML that other people wrote: plain values alone, and no more of them than the file is long."""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from objectaware.errors import InputError, system_reason

_MAX_BYTES = 2**20
# A few kilobytes of aliases of lists of aliases stand for more values than any memory holds ("billion laughs"): they
# share theirs until something, such as a message, writes them out.
_MAX_EXPANDED = 2**22


def read_yaml(path: Path, *, field: str) -> object:
    """Reads a YAML file of plain values.

    Args:
        path: The file.
        field: What it is called in messages.

    Raises:
        InputError: It is longer than a megabyte, cannot be read or is no text, or is what `parse_yaml` refuses.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= _MAX_BYTES else b""
    except OSError as error:
        raise InputError(field, path, f"cannot be read ({system_reason(error)})", "Give a YAML file.") from error
    if size > _MAX_BYTES:
        problem = f"has {size} bytes, more than the {_MAX_BYTES} that a YAML file may have"
        raise InputError(field, path, problem, "Give another file.")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(field, path, f"is no text ({error})", "Give a YAML file.") from error
    return parse_yaml(text, field=field, source=path)


def parse_yaml(text: str, *, field: str, source: object) -> object:
    """Parses a YAML document of plain values; nothing in it is run.

    Args:
        text: The document.
        field: What it is called in messages.
        source: Where it comes from, for messages.

    Raises:
        InputError: It is not YAML, asks for other than plain values, is nested deeper than Python can follow, or its
            aliases contain themselves or stand for several megabytes.
    """
    try:
        value, expanded_size = _parsed(text)
    except yaml.YAMLError as error:
        raise InputError(field, source, f"is not YAML ({error})", "Mend it.") from error
    except RecursionError as error:
        raise InputError(field, source, "is nested too deeply", "Write fewer levels.") from error
    if expanded_size > _MAX_EXPANDED:
        problem = f"has aliases that stand for more than {_MAX_EXPANDED} characters"
        raise InputError(field, source, problem, "Write out what is meant.")
    return value


def _parsed(text: str) -> tuple[object, float]:
    """The value, None where there is none or too much of it, and the size that it has written out."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, 0.0
        size = _expanded_size(node, {})
        # Merges of mappings copy what they merge: a value that is too large is not made.
        return loader.construct_document(node) if size <= _MAX_EXPANDED else None, size
    finally:
        loader.dispose()


def _expanded_size(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Characters of a node with all its aliases written out, and one a value; infinite where it contains itself."""
    if node not in known:
        known[node] = math.inf  # until it is known: what meets it inside of it goes round in circles
        if isinstance(node, yaml.ScalarNode):
            size = float(len(node.value))
        elif isinstance(node, yaml.MappingNode):
            size = sum(_expanded_size(part, known) for pair in node.value for part in pair)
        else:
            assert isinstance(node, yaml.SequenceNode)
            size = sum(_expanded_size(part, known) for part in node.value)
        known[node] = 1 + size
    return known[node]
