"""YAML from other people: only plain values, with limits on a file's size and on what its aliases stand for."""

from __future__ import annotations

import math
from pathlib import Path

import yaml

from objectaware.errors import InputError, system_reason

_MAX_BYTES = 2**20
# A few kilobytes of nested aliases can stand for more values than any memory holds ("billion laughs"). The values share
# their memory until something, such as a message, writes them out.
_MAX_EXPANDED = 2**22


def read_yaml(path: Path, *, field: str) -> object:
    """Read a YAML file of plain values.

    Args:
        path: The file.
        field: Name of the file in messages.

    Raises:
        InputError: The file is longer than a megabyte, cannot be read or is not text, or `parse_yaml` refuses it.
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
    """Parse a YAML document of plain values, without running anything in it.

    Args:
        text: The document.
        field: Name of the document in messages.
        source: Origin of the document, for messages.

    Raises:
        InputError: The document is not YAML, contains other than plain values, or is nested deeper than Python can
            follow; or its aliases contain themselves or stand for several megabytes.
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
    """Return the value (None if it is missing or too large), and its size with all aliases written out."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, 0.0
        size = _expanded_size(node, {})
        # Merging mappings copies them, so do not construct a value that is too large.
        return loader.construct_document(node) if size <= _MAX_EXPANDED else None, size
    finally:
        loader.dispose()


def _expanded_size(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """Count the characters of a node with all aliases written out, plus one per value; infinite if it holds itself."""
    if node not in known:
        known[node] = math.inf  # until the size is known: a node that is met inside itself is endless
        if isinstance(node, yaml.ScalarNode):
            size = float(len(node.value))
        elif isinstance(node, yaml.MappingNode):
            size = sum(_expanded_size(part, known) for pair in node.value for part in pair)
        else:
            assert isinstance(node, yaml.SequenceNode)
            size = sum(_expanded_size(part, known) for part in node.value)
        known[node] = 1 + size
    return known[node]
