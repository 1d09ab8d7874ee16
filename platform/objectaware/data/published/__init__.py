"""The data sets of the paper, as they were published: names, parts, where they lie, and whether they are whole."""

from objectaware.data.published.check import FoundPart, MissingPart, PublishedCheck, check_published
from objectaware.data.published.entry import PublishedSet
from objectaware.data.published.place import published_data, published_set
from objectaware.data.published.sets import PUBLISHED_SETS

__all__ = [
    "PUBLISHED_SETS",
    "FoundPart",
    "MissingPart",
    "PublishedCheck",
    "PublishedSet",
    "check_published",
    "published_data",
    "published_set",
]
