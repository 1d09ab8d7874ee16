from __future__ import annotations

import base64
import html
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from browser import chromium
from objectaware.report.gallery import GalleryEntry, gallery_html

HOSTILE = "x\" onmouseover='alert(1)'><script>document.title='owned'</script>&amp;$title${note}\u202e.jpg"
ENTRIES = [
    GalleryEntry("broken.jpg", "failed", error="<b>truncated</b>"),
    GalleryEntry("none.jpg", "ok", 0, 0.0, b"jpeg"),
    GalleryEntry("one.jpg", "ok", 1, 0.4, b"jpeg"),
    GalleryEntry(HOSTILE, "ok", 3, 0.9, b"jpeg"),
    GalleryEntry("no truth.jpg", "ok", 3, None, b"jpeg"),
]
VOID = {"meta", "img", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and collects what is in them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.text.setdefault(self.stack[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(entries: list[GalleryEntry] = ENTRIES, **settings: int) -> Page:
    return Page(gallery_html("photos <1>", entries, note="4 of 9 images", **settings))


def test_each_entry_carries_what_the_filters_ask_for() -> None:
    data = [{key: figure.get(f"data-{key}") for key in ("status", "boxes", "miou")} for figure in page().all("figure")]
    assert data == [
        {"status": "failed", "boxes": "0", "miou": None},
        {"status": "ok", "boxes": "0", "miou": "0.0000"},
        {"status": "ok", "boxes": "1", "miou": "0.4000"},
        {"status": "ok", "boxes": "3", "miou": "0.9000"},
        {"status": "ok", "boxes": "3", "miou": None},
    ]


def test_a_hostile_name_is_text_and_nothing_else() -> None:
    found = page()
    assert HOSTILE in found.text["bdi"]
    assert [attributes.get("title") for attributes in found.all("bdi")][3] == HOSTILE
    assert len(found.all("script")) == 1
    assert not found.all("b")
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert "failed · <b>truncated</b>" in found.text["span"]
    assert found.text["h1"] == ["photos <1>"]


def test_nothing_comes_from_elsewhere() -> None:
    found = page()
    sources = [value for _, attributes in found.tags for name, value in attributes.items() if name in ("src", "href")]
    assert sources == [f"data:image/jpeg;base64,{base64.b64encode(b'jpeg').decode()}"] * 4
    (policy,) = [str(one["content"]) for one in found.all("meta") if "http-equiv" in one]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_pictures_stay_within_the_bound_and_the_page_says_what_is_missing() -> None:
    entries = [GalleryEntry(f"{number}.jpg", "ok", 1, None, bytes(3000)) for number in range(50)]
    text = gallery_html("photos", entries, note="50 of 50 images", max_picture_bytes=20_000)
    assert len(text) < 20_000 + 12_000
    assert len(Page(text).all("figure")) == 5
    assert "50 of 50 images; 45 left out to keep this page small" in html.unescape(text)


def test_the_filter_of_miou_is_off_where_no_truth_is_known() -> None:
    def disabled(entries: list[GalleryEntry]) -> list[str]:
        return [str(one["id"]) for one in page(entries).all("input") if "disabled" in one]

    assert disabled(ENTRIES) == []
    assert disabled([ENTRIES[0], ENTRIES[4]]) == ["min-miou", "max-miou"]
    assert disabled([]) == ["min-miou", "max-miou"]


DRIVER = """
<script>
const set = (id, value) => {
  field(id).value = value; field(id).dispatchEvent(new Event("input", { bubbles: true }));
};
const visible = () => figures.filter((one) => getComputedStyle(one).display !== "none").map((one) => one.textContent);
const results = { all: visible() };
set("status", "failed"); results.failed = visible(); field("reset").click();
set("min-boxes", "1"); results.boxes = visible(); set("max-boxes", "2"); results.both = visible();
field("reset").click();
set("max-boxes", "0"); results.none = visible(); field("reset").click();
set("max-miou", "0.5"); results.miou = visible(); results.count = field("shown").textContent;
field("reset").click(); results.reset = visible(); results.title = document.title;
parent.postMessage(JSON.stringify(results), "*");
</script>
"""


@pytest.mark.slow
def test_the_filters_work_in_a_browser_inside_mlflows_sandbox(tmp_path: Path) -> None:
    text = gallery_html("photos", ENTRIES, note="5 of 5 images").replace("</body>", DRIVER + "</body>")
    # As MLflow's artifact view shows an HTML file.
    frame = f'<iframe sandbox="allow-scripts" width="900" height="900" srcdoc="{html.escape(text)}"></iframe>'
    listen = "addEventListener('message', (event) => { document.getElementById('got').textContent = event.data; });"
    outer = tmp_path / "outer.html"
    outer.write_text(f'<!DOCTYPE html><meta charset="utf-8"><pre id="got"></pre><script>{listen}</script>{frame}')
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=10000", "--dump-dom", outer.as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    got = done.stdout.partition('<pre id="got">')[2].partition("</pre>")[0]
    results = json.loads(html.unescape(got))
    places = {
        key: [next(index for index, entry in enumerate(ENTRIES) if entry.image_id in shown) for shown in value]
        for key, value in results.items()
        if isinstance(value, list)
    }
    assert places == {
        "all": [0, 1, 2, 3, 4],
        "failed": [0],
        "boxes": [2, 3, 4],
        "both": [2],
        "none": [1],
        "miou": [1, 2],
        "reset": [0, 1, 2, 3, 4],
    }
    assert results["count"] == "2 of 5 shown"
    assert results["title"] == "photos"
