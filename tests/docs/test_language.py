"""Phrases that a reader has to decode, in the package and on its pages (CONTRIBUTING.md, Language)."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PHRASES = {
    r"\banew\b": "again, or from scratch",
    r"(?<![Tt]here )\b(is|are) no (?!longer|more|less|other)[a-z]": "is not a valid rate",
    r"\bfor ever\b": "permanently",
    r"\bso many\b": "as many as",
    r"\bgo(es)? on (from|in|where|there|here|elsewhere|with)\b": "resumes, continues",
    r"\b(told|tell|tells|telling)\b(?! \w+ from| apart| whether| how)": "log, report or print",
    r"\b[Ww]hoever\b": "name the subject",
    r"^\W*\"\"\"(What|Whoever|Those) ": "a verb in the imperative",
    r"\bthat there (is|are|was|were) (some|any)\b": "leave it out",
    r"\ba (row|folder|file|line|value|number|process|seed|trial|epoch|step) an? (?!\w+ by)": "one row per trial",
    r"\b[Mm]end it\b": "say what to do",
    r"\bshall\b": "should, or must",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, or of a module's comments and strings, with their numbers."""
    source = path.read_text()
    if path.suffix == ".md":
        if path.name == "CONTRIBUTING.md":  # its rule quotes the phrases
            source = re.sub(r"## Language\n.*?\n(?=## )", lambda rule: "\n" * rule[0].count("\n"), source, flags=re.S)
        yield from enumerate(source.splitlines(), start=1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), start=token.start[0])


def found(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()} (better: {better})"
        for number, line in texts(path)
        for phrase, better in PHRASES.items()
        if re.search(phrase, line)
    ]


@pytest.mark.parametrize("part", sorted((ROOT / "platform" / "objectaware").iterdir()), ids=lambda part: part.name)
def test_the_package_is_in_plain_english(part: Path) -> None:
    modules = [part] if part.suffix == ".py" else sorted(part.rglob("*.py"))
    assert not [one for module in modules for one in found(module)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_are_in_plain_english(page: Path) -> None:
    assert not found(page)


def test_a_phrase_is_found_in_a_comment_and_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text('x = 1  # begun anew\ntell = "no rate"\ny = f"{x} is no rate"\n')
    assert [one.split(":")[1] for one in found(module)] == ["1", "3"]
