"""The commands behind the command line, one function each."""

from __future__ import annotations

from collections.abc import Callable

from objectaware.commands.data import build_scenes, draw_subset, list_data, pack
from objectaware.commands.evaluate import (
    evaluate_background,
    evaluate_linear,
    evaluate_localization,
    evaluate_localizers,
)
from objectaware.commands.export import export_backbone, export_boxes, export_masks
from objectaware.commands.look import doctor, ui
from objectaware.commands.published import build_imagenet9, check_data
from objectaware.commands.reproduce import list_paper, show_table
from objectaware.commands.stages import demo, localize, pretrain
from objectaware.commands.submit import submit

COMMANDS: dict[str, Callable[[str, list[str]], None]] = {
    "demo": demo,
    "pretrain": pretrain,
    "localize": localize,
    "evaluate linear": evaluate_linear,
    "evaluate background": evaluate_background,
    "evaluate localization": evaluate_localization,
    "evaluate localizers": evaluate_localizers,
    "data build scenes": build_scenes,
    "data build imagenet9": build_imagenet9,
    "data check": check_data,
    "export backbone": export_backbone,
    "data list": list_data,
    "data subset": draw_subset,
    "data pack": pack,
    "doctor": doctor,
    "export boxes": export_boxes,
    "export masks": export_masks,
    "reproduce list": list_paper,
    "reproduce show": show_table,
    "submit": submit,
    "ui": ui,
}
