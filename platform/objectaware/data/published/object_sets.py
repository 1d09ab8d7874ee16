"""Published data sets with classes, masks or boxes of their own."""

from __future__ import annotations

from objectaware.data.published.entry import PublishedSet, wsolevaluation_parts

COCO = PublishedSet(
    "COCO",
    "COCO",
    "annotations CC BY 4.0; pictures by their Flickr licences",
    "cocodataset.org: train2017.zip, val2017.zip, annotations_trainval2017.zip",
    {part: {"layout": "coco", "split": part} for part in ("train", "val")},
    {"train": 118_287, "val": 5_000},
)

COCO_CROP = PublishedSet(
    "COCO-Crop",
    "COCO",
    COCO.licence,
    "derived from COCO: " + COCO.source,
    {part: {"layout": "coco-crop", "split": part} for part in ("train", "val")},
)

CUB = PublishedSet(
    "CUB-200-2011",
    "CUB_200_2011",
    "pictures by their Flickr licences: non-commercial research and education",
    "data.caltech.edu/records/65de6-vp158: CUB_200_2011.tgz, and segmentations.tgz into the same folder. redo-…: "
    "datasplits/cub/train_val_test_split.txt of github.com/mickaelChen/ReDO there, too. wsol-…: a clone of "
    "github.com/clovaai/wsolevaluation beside it; wsol-val: its CUBV2.tar into images",
    {split: {"layout": "cub", "split": split} for split in ("train", "test", "redo-train", "redo-val", "redo-test")}
    | wsolevaluation_parts("CUB"),
    {
        "train": 5_994,
        "test": 5_794,
        "redo-train": 10_000,
        "redo-val": 788,
        "redo-test": 1_000,
        "wsol-val": 1_000,
        "wsol-test": 5_794,
    },
)

FLOWERS = PublishedSet(
    "Flowers102",
    "flowers102",
    "pictures by their owners' licences: research",
    "robots.ox.ac.uk/~vgg/data/flowers/102: 102flowers.tgz, imagelabels.mat, setid.mat (torchvision's Flowers102 "
    "downloads these), and 102segmentations.tgz for the masks",
    {
        split: {"layout": "flowers102", "split": split}
        for split in ("train", "val", "test", "redo-train", "redo-val", "redo-test")
    },
    {
        "train": 1_020,
        "val": 1_020,
        "test": 6_149,
        "redo-train": 6_149,
        "redo-val": 1_020,
        "redo-test": 1_020,
    },
)

VOC = PublishedSet(
    "VOC2012",
    "VOCdevkit",
    "pictures by their Flickr licences",
    "host.robots.ox.ac.uk/pascal/VOC/voc2012: VOCtrainval_11-May-2012.tar (torchvision's VOCDetection downloads it)",
    {split: {"layout": "voc", "split": split} for split in ("val", "segmentation-val")},
    {"val": 5_823, "segmentation-val": 1_449},
)

OPENIMAGES = PublishedSet(
    "OpenImages",
    "OpenImages",
    "pictures CC BY 2.0, annotations CC BY 4.0",
    "images and masks as github.com/clovaai/wsolevaluation links them, both into this folder; a clone of it beside it",
    wsolevaluation_parts("OpenImages"),
    {"wsol-val": 2_500, "wsol-test": 5_000},
)

CIFAR_10 = PublishedSet(
    "CIFAR-10",
    "cifar-10-batches-py",
    "none stated; its authors ask to be cited",
    "torchvision.datasets.CIFAR10 downloads it (www.cs.toronto.edu/~kriz/cifar.html, the Python version)",
    {part: {"layout": "cifar-10", "split": part} for part in ("train", "test")},
    {"train": 50_000, "test": 10_000},
)

CIFAR_100 = PublishedSet(
    "CIFAR-100",
    "cifar-100-python",
    CIFAR_10.licence,
    "torchvision.datasets.CIFAR100 downloads it (www.cs.toronto.edu/~kriz/cifar.html, the Python version)",
    {part: {"layout": "cifar-100", "split": part} for part in ("train", "test")},
    {"train": 50_000, "test": 10_000},
)

FOOD_101 = PublishedSet(
    "Food-101",
    "food-101",
    "pictures of Foodspotting, which do not belong to its authors; scientific fair use",
    "torchvision.datasets.Food101 downloads it (food-101.tar.gz of ETH Zürich's computer vision lab)",
    {part: {"layout": "food-101", "split": part} for part in ("train", "test")},
    {"train": 75_750, "test": 25_250},
)

PETS = PublishedSet(
    "Oxford-IIIT Pets",
    "Pets",
    "CC BY-SA 4.0",
    "torchvision.datasets.OxfordIIITPet downloads it (www.robots.ox.ac.uk/~vgg/data/pets: images.tar.gz, "
    "annotations.tar.gz)",
    {part: {"layout": "oxford-iiit-pets", "split": part} for part in ("train", "test")},
    {"train": 3_680, "test": 3_669},
    "train is the list trainval",
)
