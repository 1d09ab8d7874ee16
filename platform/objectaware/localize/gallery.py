"""What localization found as one HTML page that needs nothing else: no server, no network, no library.

MLflow shows an HTML artifact in a frame that is sandboxed to scripts: what the page does is inline code that asks
for no storage, no address and no file. Its own content security policy forbids it everything else, so that a file
name that got through the escaping could load nothing.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from dataclasses import dataclass
from string import Template
from typing import Literal

NUM_GALLERY_IMAGES = 200
"""Localized images of a gallery, at most."""

MAX_PICTURE_BYTES = 8 * 2**20
"""How large the pictures of a page are together, as they stand in it: a browser opens that at once."""


@dataclass(frozen=True)
class GalleryEntry:
    """One image of the gallery.

    Attributes:
        image_id: Path relative to the data set.
        status: `failed` for an image that could not be read.
        num_boxes: Boxes found in it.
        miou: Foreground IoU with the true mask in [0, 1]; None where that is not known.
        jpeg: Picture of what was found; None where there is none to show.
        error: Why it failed, else empty.
    """

    image_id: str
    status: Literal["ok", "failed"]
    num_boxes: int = 0
    miou: float | None = None
    jpeg: bytes | None = None
    error: str = ""


def gallery_html(
    title: str, entries: Iterable[GalleryEntry], *, note: str, max_picture_bytes: int = MAX_PICTURE_BYTES
) -> str:
    """Builds the page.

    Args:
        title: Its heading.
        entries: What it shows, in order. Those whose picture does not fit any more are left out, which the page
            says.
        note: What the entries are of, such as "200 of 118287 images"; stands under the heading.
        max_picture_bytes: Bound on the pictures together, in base64.

    Returns:
        HTML, to be stored as UTF-8. Each entry is a `figure` with the data attributes `status`, `boxes` and, where
        it is known, `miou`, by which the page's controls filter.
    """
    figures: list[str] = []
    num_pictureless = num_bytes = num_without_truth = 0
    for entry in entries:
        picture = base64.b64encode(entry.jpeg or b"").decode("ascii")
        if num_bytes + len(picture) > max_picture_bytes:
            num_pictureless += 1
            continue
        num_bytes += len(picture)
        num_without_truth += entry.miou is None
        figures.append(_figure(entry, picture))
    if num_pictureless:
        note += f"; {num_pictureless} left out to keep this page small"
    has_truth = num_without_truth < len(figures)
    return _PAGE.substitute(
        title=html.escape(title),
        note=html.escape(note),
        disabled="" if has_truth else 'disabled title="no true masks are known for these images"',
        figures="\n".join(figures),
    )


def _figure(entry: GalleryEntry, picture: str) -> str:
    name = html.escape(entry.image_id)
    miou = "" if entry.miou is None else f' data-miou="{entry.miou:.4f}"'
    facts = [f"{entry.num_boxes} {'box' if entry.num_boxes == 1 else 'boxes'}"] if entry.status == "ok" else ["failed"]
    facts += [] if entry.miou is None else [f"mIoU {entry.miou:.3f}"]
    facts += [html.escape(entry.error)] if entry.error else []
    image = f'<img alt="" src="data:image/jpeg;base64,{picture}">' if picture else ""
    return (
        f'<figure data-status="{entry.status}" data-boxes="{entry.num_boxes}"{miou}>{image}'
        f'<figcaption><bdi title="{name}">{name}</bdi><span>{" · ".join(facts)}</span></figcaption></figure>'
    )


_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 0 16px 16px; color: #222; background: #fff; }
header { position: sticky; top: 0; padding: 8px 0; background: #fff; border-bottom: 1px solid #ccc; }
h1 { font-size: 18px; margin: 0; overflow-wrap: anywhere; }
p { margin: 0 0 6px; color: #555; }
fieldset { display: flex; flex-wrap: wrap; gap: 6px 20px; border: 0; margin: 0; padding: 0; align-items: baseline; }
input[type=number] { width: 4.5em; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 12px; }
main { margin-top: 12px; }
figure { margin: 0; padding: 6px; border: 1px solid #ddd; border-radius: 4px; }
figure[data-status=failed] { background: #fdecea; }
figure[hidden] { display: none; }
img { display: block; width: 100%; height: auto; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 12px; font-size: 12px; }
bdi { overflow-wrap: anywhere; }
</style>
</head>
<body>
<header>
<h1>$title</h1>
<p>$note. From left to right: photo, CAM, mask, boxes.</p>
<fieldset id="filters">
<label>status <select id="status"><option value="">all</option>
<option>ok</option><option>failed</option></select></label>
<span>boxes <label>from <input id="min-boxes" type="number" min="0" step="1"></label>
<label>to <input id="max-boxes" type="number" min="0" step="1"></label></span>
<span>mIoU <label>from <input id="min-miou" type="number" min="0" max="1" step="0.05" $disabled></label>
<label>to <input id="max-miou" type="number" min="0" max="1" step="0.05" $disabled></label></span>
<button id="reset" type="button">show all</button>
<output id="shown"></output>
</fieldset>
</header>
<main>
$figures
</main>
<script>
"use strict";
const figures = [...document.querySelectorAll("figure")];
const field = (id) => document.getElementById(id);

// An empty field does not filter. A value that is not known lies in no range.
function isWithin(value, name) {
  const lowest = field("min-" + name).value, highest = field("max-" + name).value;
  if (lowest === "" && highest === "") return true;
  if (value === undefined) return false;
  return (lowest === "" || Number(value) >= Number(lowest)) && (highest === "" || Number(value) <= Number(highest));
}

function filter() {
  const status = field("status").value;
  for (const figure of figures) {
    const { status: own, boxes, miou } = figure.dataset;
    // A failed image has no number of boxes, rather than none.
    const known = own === "failed" ? undefined : boxes;
    figure.hidden = !((status === "" || own === status) && isWithin(known, "boxes") && isWithin(miou, "miou"));
  }
  field("shown").textContent = figures.filter((figure) => !figure.hidden).length + " of " + figures.length + " shown";
}

field("filters").addEventListener("input", filter);
field("reset").addEventListener("click", () => {
  for (const control of field("filters").querySelectorAll("input, select")) control.value = "";
  filter();
});
filter();
</script>
</body>
</html>
""")
