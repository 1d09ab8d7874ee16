"""The commands behind the command line, one function each."""

from __future__ import annotations

from collections.abc import Callable

from objectaware.commands.data import build_scenes, draw_subset, list_data, pack
from objectaware.commands.detection import evaluate_detection, export_detector, export_detectron2
from objectaware.commands.evaluate import (
    evaluate_background,
    evaluate_class_distance,
    evaluate_few_shot,
    evaluate_knn,
    evaluate_linear,
    evaluate_localization,
    evaluate_localizers,
    evaluate_losses,
    evaluate_shift,
)
from objectaware.commands.export import export_backbone, export_boxes, export_masks
from objectaware.commands.look import doctor, ui
from objectaware.commands.plan import plan_measure, plan_show
from objectaware.commands.published import build_imagenet9, check_data
from objectaware.commands.reproduce import list_paper, reproduce_table, show_table
from objectaware.commands.runs import compare_runs, list_runs, prune_runs, show_run
from objectaware.commands.stages import demo, localize, pretrain
from objectaware.commands.submit import submit
from objectaware.commands.sweep import sweep

COMMANDS: dict[str, Callable[[str, list[str]], None]] = {
    "demo": demo,
    "pretrain": pretrain,
    "localize": localize,
    "evaluate linear": evaluate_linear,
    "evaluate background": evaluate_background,
    "evaluate detection": evaluate_detection,
    "evaluate localization": evaluate_localization,
    "evaluate localizers": evaluate_localizers,
    "evaluate knn": evaluate_knn,
    "evaluate shift": evaluate_shift,
    "evaluate few-shot": evaluate_few_shot,
    "evaluate class-distance": evaluate_class_distance,
    "evaluate losses": evaluate_losses,
    "data build scenes": build_scenes,
    "data build imagenet9": build_imagenet9,
    "data check": check_data,
    "export backbone": export_backbone,
    "export detector": export_detector,
    "export detectron2": export_detectron2,
    "data list": list_data,
    "data subset": draw_subset,
    "data pack": pack,
    "doctor": doctor,
    "export boxes": export_boxes,
    "export masks": export_masks,
    "plan measure": plan_measure,
    "plan show": plan_show,
    "reproduce": reproduce_table,
    "reproduce list": list_paper,
    "reproduce show": show_table,
    "runs list": list_runs,
    "runs show": show_run,
    "runs compare": compare_runs,
    "runs prune": prune_runs,
    "submit": submit,
    "sweep": sweep,
    "ui": ui,
}
