"""Sets of images that are shifted away from ImageNet's: ImageNet-Sketch, -R and -C, Stylized, SI-Score and ObjectNet.

Each opens with the folder that its release unpacks to, the one above it, or the one that holds the class folders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from objectaware.data.dataset import Dataset, OpenedImages, PublishedSet
from objectaware.data.folder import ImageFolder
from objectaware.data.sets import imagenet
from objectaware.data.user_files import Release, find_class_folders

CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The corruptions of ImageNet-C by kind, each in five severities; the archives are named by the kind."""

CORRUPTED_VARIANTS = tuple(
    f"{corruption}-{severity}" for kind in CORRUPTIONS.values() for corruption in kind for severity in range(1, 6)
)
"""Variants of ImageNet-C, such as `gaussian_noise-3`."""


class _Shifted(imagenet.ImageNetClasses):
    """Base of the sets with one folder per class, named by its wnid.

    Attributes:
        folders: Folders that may hold the class folders, relative to the root, the published one first. They are
            templates of the split, and of the kind, name and severity of a corruption.
    """

    folders: ClassVar[tuple[str, ...]]

    def open_images(self) -> ImageFolder:
        """List the pictures."""
        corruption, _, severity = self.variant.rpartition("-")
        kind = next((kind for kind, names in CORRUPTIONS.items() if corruption in names), "")
        words = {"split": self.split, "kind": kind, "corruption": corruption, "severity": severity}
        folders = [folder.format_map(words) for folder in self.folders]
        found = find_class_folders(self.name, self.root, folders, imagenet.is_wnid, "n01440764")
        return imagenet.load_wnid_folders(found)


class Sketch(_Shifted):
    """ImageNet-Sketch: 50,889 drawings of all 1,000 classes."""

    name = "imagenet-sketch"
    content = "sketch/<wnid>/*.JPEG"
    folders = ("sketch", "imagenet-sketch/sketch", ".")


class Renditions(_Shifted):
    """ImageNet-R: 30,000 pictures of 200 classes, numbered as ImageNet's 1,000."""

    name = "imagenet-r"
    content = "imagenet-r/<wnid>/*.jpg"
    folders = ("imagenet-r", ".")


class Corrupted(_Shifted):
    """ImageNet-C, 50,000 images of each corruption; the folder of the archive may lie above the corruption's."""

    name = "imagenet-c"
    content = "<corruption>/<severity>/<wnid>/*.JPEG, also below {noise,blur,weather,digital}"
    variants = CORRUPTED_VARIANTS
    folders = (
        *("{corruption}/{severity}", "{kind}/{corruption}/{severity}"),
        *("imagenet-c/{corruption}/{severity}", "imagenet-c/{kind}/{corruption}/{severity}"),
    )


class Stylized(_Shifted):
    """Stylized-ImageNet, as its generator writes it."""

    name = "stylized-imagenet"
    content = "{train,val}/<wnid>/*"
    splits = ("train", "val")
    folders = ("{split}", "stylized-imagenet/{split}")


FACTORS = ("size", "location", "rotation")
"""The factors of SI-Score, of which one varies."""
# The store's prefixes are `object_size` and so on; the archives beside them unpack to these folders.
_UNPACKED = {"size": "area", "location": "location20_area02_min0pc", "rotation": "rotation"}


class SiScore(imagenet.ImageNetClasses):
    """SI-Score: objects pasted onto backgrounds in many sizes, places and angles.

    One folder per class, named in words. Labels are the numbers of ImageNet's classes, 0 to 999; class names are wnids.
    """

    name = "si-score"
    content = "object_{size,location,rotation}/<class>/*.jpg"
    variants = FACTORS

    def open_images(self) -> ImageFolder:
        """List the pictures in which one factor varies."""
        prefix, unpacked = f"object_{self.variant}", _UNPACKED[self.variant]
        places = [prefix, f"{prefix}/{unpacked}", unpacked, self.variant, f"{self.variant}/{unpacked}"]
        names = list(dict.fromkeys(places))
        known = imagenet.class_of_si_score()
        folder = find_class_folders(self.name, self.root, names, known.__contains__, "ambulance")
        release = Release(self.name, remedy="Leave the data set's own folders there alone.")
        return imagenet.load_class_folders(folder, known, "SI-Score's classes", release)


_LABELS = "mappings/folder_to_objectnet_label.json"
_BORDER = 2
_OBJECTNET_RELEASE = Release("objectnet", ("objectnet-1.0",), (_LABELS, "images"))


class BorderlessImages:
    """Images of a folder whose outermost pixels do not belong to the picture.

    Not an `ImageFolder`, whose files others read or copy whole.

    Args:
        files: The images as they lie in their files.

    Attributes:
        files: As given.
        image_ids: Paths relative to their folder.
        labels: Class index of each image, (N,), or None.
        class_names: Names of the classes, by index.
    """

    def __init__(self, files: ImageFolder) -> None:
        self.files = files
        self.image_ids = files.image_ids
        self.labels = files.labels
        self.class_names = files.class_names

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Return the pixels (H, W, 3) of one image without its border.

        Raises:
            objectaware.data.images.UnreadableImage: The file gives no picture.
        """
        return self.files.read(index)[_BORDER:-_BORDER, _BORDER:-_BORDER]


class ObjectNet(Dataset):
    """ObjectNet 1.0: `objectnet-1.0/images/<folder>/*.png` and `objectnet-1.0/mappings/*.json`.

    Every picture has a red border of two pixels, which marks it as a test picture and is cut off here. Classes are
    numbered in the order of their folders' names, and named by the mappings, which have orders of their own.
    """

    name = "objectnet"
    content = "objectnet-1.0/images/<class>/*.png and mappings/*.json; the border is cut off"
    labels = "class"
    are_files = False
    has_superclasses = True

    def open_images(self) -> BorderlessImages:
        """List the pictures. A folder that has no name in the mapping is refused."""
        base = _OBJECTNET_RELEASE.base(self.root)
        folders = ImageFolder.from_classes(base / "images")
        label_of_folder = _read_mapping(base / _LABELS)
        for folder in folders.class_names:
            if folder not in label_of_folder:
                raise _OBJECTNET_RELEASE.malformed(base / _LABELS, f"has no entry for the folder {folder}")
        names = [str(label_of_folder[folder]) for folder in folders.class_names]
        return BorderlessImages(ImageFolder(folders.root, folders.image_ids, folders.labels, names))

    def by_superclass(self, images: OpenedImages) -> BorderlessImages:
        """Label images with the superclasses that its own mappings give.

        A class counts where all of ImageNet's classes that the mappings give it have the superclass in common. That is
        one class in the published mappings, Bicycle (444 and 671, wheeled vehicle); the paper does not say which
        classes its ObjectNet-9 had.
        """
        mappings = _OBJECTNET_RELEASE.base(self.root) / "mappings"
        names_of_label = _read_mapping(mappings / "objectnet_to_imagenet_1k.json")
        line_of_class = _read_mapping(mappings / "pytorch_to_imagenet_2012_id.json")
        class_of_line = {int(line): int(number) for number, line in line_of_class.items()}
        lines = _OBJECTNET_RELEASE.lines(mappings / "imagenet_to_label_2012_v2")
        class_of_name = {name: class_of_line[line] for line, name in enumerate(lines) if line in class_of_line}
        superclasses = []
        for label in images.class_names:
            names = [name.strip() for name in str(names_of_label.get(label, "")).split(";") if name.strip()]
            unknown = [name for name in names if name not in class_of_name]
            if unknown:
                problem = f"has no line {unknown[0]!r}, which stands for {label}"
                raise _OBJECTNET_RELEASE.malformed(mappings / "imagenet_to_label_2012_v2", problem)
            superclasses.append(imagenet.common_superclass([class_of_name[name] for name in names]))
        assert isinstance(images, BorderlessImages), type(images)
        return BorderlessImages(imagenet.select_superclasses(images.files, np.array(superclasses), self.root))


def _read_mapping(path: Path) -> dict[str, Any]:
    with _OBJECTNET_RELEASE.reading(path, "is not JSON", json.JSONDecodeError):
        content = json.loads("\n".join(_OBJECTNET_RELEASE.lines(path)))
    if not isinstance(content, dict):
        raise _OBJECTNET_RELEASE.malformed(path, "is not a mapping")
    return content


SKETCH = PublishedSet(
    "ImageNet-Sketch",
    "imagenet-sketch",
    "MIT for the code; drawings from the web, for research",
    "github.com/HaohanWang/ImageNet-Sketch",
    {"test": {"layout": Sketch.name}},
    {"test": 50_889},
)

imagenet.publish_superclasses(SKETCH)

STYLIZED = PublishedSet(
    "Stylized-ImageNet",
    "stylized-imagenet",
    imagenet.IMAGENET_TERMS,
    "github.com/rgeirhos/Stylized-ImageNet, whose code makes it of ImageNet",
    {"test": {"layout": Stylized.name, "split": "val"}},
    {"test": 50_000},
    "test is its val",
)

imagenet.publish_superclasses(STYLIZED, num_images=imagenet.NUM_IN_370_CLASSES)

RENDITIONS = PublishedSet(
    "ImageNet-R",
    "imagenet-r",
    "MIT for the code; pictures from the web, for research",
    "github.com/hendrycks/imagenet-r: imagenet-r.tar",
    {"test": {"layout": Renditions.name}},
    {"test": 30_000},
)

imagenet.publish_superclasses(RENDITIONS, "99 of its 200 classes are among the 370")

CORRUPTED = PublishedSet(
    "ImageNet-C",
    "imagenet-c",
    "CC BY 4.0; the pictures by ImageNet's terms of access",
    "zenodo.org/records/2235448 (github.com/hendrycks/robustness): noise.tar, blur.tar, weather.tar, digital.tar",
    {variant: {"layout": Corrupted.name, "variant": variant} for variant in CORRUPTED_VARIANTS},
    dict.fromkeys(CORRUPTED_VARIANTS, 50_000),
    "without the four extra corruptions",
)

imagenet.publish_superclasses(CORRUPTED, num_images=imagenet.NUM_IN_370_CLASSES)

SI_SCORE = PublishedSet(
    "SI-Score",
    "si-score",
    "Apache 2.0 for the code; objects of Open Images (Creative Commons), backgrounds of Pexels (its licence)",
    "s3://si-score-dataset/object_{size,location,rotation} (github.com/google-research/si-score)",
    {variant: {"layout": SiScore.name, "variant": variant} for variant in FACTORS},
)

imagenet.publish_superclasses(
    SI_SCORE, "its classes cover four of the nine: bird, wheeled vehicle, carnivore, instrument"
)

OBJECTNET = PublishedSet(
    "ObjectNet",
    "objectnet-1.0",
    "CC BY 4.0, and not for training",
    "objectnet.dev: objectnet-1.0.zip",
    {"test": {"layout": ObjectNet.name}},
    {"test": 50_273},
    "the red border of two pixels is cut off",
)

imagenet.publish_superclasses(
    OBJECTNET,
    "by its own mappings one class of ObjectNet, Bicycle (ImageNet's 444 and 671), lies in the nine superclasses; the "
    "paper does not say which classes it took",
)
