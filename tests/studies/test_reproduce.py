"""Plans of the paper run as stages: order, reuse, failures, and what becomes of the cells. Nothing starts Ray here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from contexts import make_context, next_command
from in_process import write_colours
from objectaware.config import LocalizeConfig, PretrainConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.errors import InputError
from objectaware.localize.contracam import ContraCAM
from objectaware.paper import TABLE_LABELS, Cell, load_figures, load_table
from objectaware.paper.figures import plan_figure
from objectaware.paper.nodes import (
    ClassName,
    Images,
    ImagesOfClass,
    Node,
    Planned,
    Published,
    images_of,
    needs,
    ordered,
)
from objectaware.paper.plan import PUBLISHED_NAMES, Protocol, plan_table, training
from objectaware.planning.model import Machine
from objectaware.stages.linear import LinearConfig
from objectaware.stages.registry import computing_stage
from objectaware.stages.runner import Context, NotFinishedError, StageResult
from objectaware.studies import engine
from objectaware.studies.engine import StagesFailedError, Step
from objectaware.studies.reproduce.plan import cost_of, finished, plan_report, stated_rates
from objectaware.studies.reproduce.scale import (
    SMOKE_MARK,
    Full,
    Results,
    Scale,
    Smoke,
    obstacles,
    read_names,
)
from objectaware.studies.reproduce.study import DRAWINGS, run_table, steps_of
from objectaware.tracking import Tracker, TrackingStore
from stage_runs import run_as

RECIPES = Path(__file__).parents[2] / "jobs" / "recipes"
PLANS = [*(plan_table(label, num_seeds=1) for label in TABLE_LABELS), *(plan_figure(f.label) for f in load_figures())]

_NAMES = [*TABLE_LABELS, *(f"figure:{figure.label}" for figure in load_figures())]


def _is(node: Node, kind: str) -> bool:
    return isinstance(node, Planned) and node.kind == kind


RECIPES_IN_USE = sorted({node.recipe for plan in PLANS for node in plan.nodes() if _is(node, "pretrain")})


@pytest.fixture
def context(tmp_path: Path, tracking: TrackingStore) -> Context:
    return make_context(tmp_path, tracking)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Scale:
    folder = tmp_path_factory.mktemp("scenes")
    build_scenes(folder / "multi-object", variant="multi-object", num_train=9, num_val=9, image_size=32)
    return Smoke(RECIPES, folder / "single-object", folder / "multi-object")


class _Stages:
    """Stands in for all stages; every number that it gives is 50, and that of a training's seed the seed."""

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self.ran: list[Node] = []
        self.failing = failing
        self.parent: Tracker | None = None

    def run(self, context: Context, step: Step, results: Results) -> StageResult:
        node = step.name
        for one in needs(node):
            assert one in results or not isinstance(one, Planned), "what it needs has not run"
        self.ran.append(node)
        self.parent = context.parent
        if node.kind == "pretrain" and node.recipe in self.failing:
            raise RuntimeError("out of memory")
        return StageResult("id", context.services.storage, _Fifty(), None, reused=False)


class _Fifty(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        return 50.0 if key in ("miou", "original", "test", "box_ap") else _Fifty()


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> _Stages:
    return _install(monkeypatch, _Stages())


def _install(monkeypatch: pytest.MonkeyPatch, stages: _Stages) -> _Stages:
    monkeypatch.setattr(engine, "run_step", stages.run)
    return stages


def test_every_stage_runs_once_after_what_it_needs(smoke: Scale, context: Context, stages: _Stages) -> None:
    nodes = [smoke.adapted(node) for node in plan_table("loc-main").nodes()]
    outcome = engine.run(context, steps_of(smoke, ordered(nodes)), keep_going=True)
    assert set(outcome.results) == {node for node in ordered(nodes) if isinstance(node, Planned)}
    assert len(stages.ran) == len(set(stages.ran)) == len(outcome.results)


def test_a_failure_takes_with_it_what_needs_it_and_is_named(
    smoke: Scale, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(monkeypatch, _Stages(failing=("moco_resnet18_cub",)))
    with pytest.raises(
        StagesFailedError, match="pretrain moco_resnet18_cub seed 0: RuntimeError: out of memory"
    ) as info:
        run_table(context, smoke, plan_table("loc-iter"))
    assert isinstance(info.value.__cause__, RuntimeError)
    report = info.value.report
    assert report is not None
    assert "out of memory" in report.measured[("1",), ("CUB",)]
    assert report.measured[("1",), ("Flowers",)] == Cell(50)


def test_a_study_logs_the_table_and_says_that_it_is_smoke(smoke: Scale, context: Context, stages: _Stages) -> None:
    report = run_table(context, smoke, plan_table("loc-cam"))
    assert all(isinstance(one, Cell) for one in report.measured.values())
    assert report.mark == SMOKE_MARK
    assert not any(map(report.difference, report.measured)), "nothing of a smoke test is compared"
    assert stages.parent is not None
    assert stages.parent.opening.name == f"loc-cam ({SMOKE_MARK})"
    files = context.services.tracking.server.client.list_artifacts(str(stages.parent.run_id), "tables")
    assert "tables/loc-cam (smoke on scenes).json" in {file.path for file in files}


def test_a_number_of_several_seeds_is_their_mean(
    smoke: Scale, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BySeed(_Stages):
        def run(self, context: Context, step: Step, results: Results) -> StageResult:
            node = step.name
            seed = node.fields["checkpoint"].fields["seed"] if node.kind == "linear" else 0
            values: Mapping[str, Any] = {"accuracies": {"test": 10.0 * seed}}
            return StageResult("id", context.services.storage, values, None, reused=False)

    _install(monkeypatch, BySeed())
    report = run_table(context, smoke, plan_table("multi-second", num_seeds=3))
    assert report.measured[("BYOL", "CAM", "2"), ("Pets",)] == Cell(10, 10)


@pytest.mark.parametrize("shift", [0, 1])
def test_a_gain_is_taken_within_each_seed(
    shift: int, smoke: Scale, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers of both trainings, once in the order of the seeds and once moved on by one."""

    class BySeed(_Stages):
        def run(self, context: Context, step: Step, results: Results) -> StageResult:
            node = step.name
            if node.kind != "linear":
                return StageResult("id", context.services.storage, {}, None, reused=False)
            training = node.fields["checkpoint"]
            seed, is_debiased = training.fields["seed"], training.recipe.endswith("object_crop")
            number = 2.0 + 10.0 * ((seed + shift) % 3) if is_debiased else 10.0 * seed
            values: Mapping[str, Any] = {"accuracies": {"test": number}}
            return StageResult("id", context.services.storage, values, None, reused=False)

    _install(monkeypatch, BySeed())
    report = run_table(context, smoke, plan_table("multi-imagenet", num_seeds=3))
    place = (("BYOL", "COCO", "CAM"), ("Pets",))
    assert report.measured[place] == Cell(12, 10)
    by_seed = (2.0, 2.0, 2.0) if shift == 0 else (12.0, 12.0, -18.0)
    assert report.gains[place].by_seed == by_seed
    assert report.gains[place].std == pytest.approx(0 if shift == 0 else 300**0.5)
    assert (("BYOL", "ImageNet 10%", "-"), ("Pets",)) not in report.gains
    assert not run_table(context, smoke, plan_table("multi-imagenet", num_seeds=1)).gains


@pytest.mark.parametrize("label", TABLE_LABELS)
def test_every_table_of_several_trainings_compares_them(label: str) -> None:
    table = load_table(label)
    assert not (table.baseline and table.reference)
    assert bool(table.compared(table.baseline or table.reference)) == (not label.startswith("loc-"))


def test_a_changed_recipe_is_named_with_the_fields_that_changed(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    for path in (*RECIPES.glob("*.yaml"), *RECIPES.glob("base/*.yaml")):
        (tmp_path / path.relative_to(RECIPES)).write_text(path.read_text())
    network, masked = training("moco_resnet18_in9"), training("moco_resnet18_in9_background_mixup", seed=1)
    full = Full(tmp_path, tmp_path / "data")
    assert full.deviation(network) is full.deviation(masked) is None
    with (tmp_path / "moco_resnet18_in9.yaml").open("a") as file:
        file.write("method: {temperature: 0.1}\nnum_epochs: 10\nexecution: {num_workers: 2}\n")
    reason = (
        "the recipe moco_resnet18_in9 was changed: "
        "method.temperature 0.1 in place of 0.2, num_epochs 10 in place of 800"
    )
    assert (full.deviation(network), full.deviation(masked)) == (reason, None)


def test_images_that_are_not_the_published_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = tmp_path / "bg_challenge" / "original" / "train"
    write_colours(train, {"00_dog": "red", "01_bird": "blue"}, 2)
    network = training("moco_resnet18_in9")
    full = Full(RECIPES, tmp_path)
    assert full.deviation(network) == "ImageNet-9 train has 4 of 45,405 images"
    train.with_name("train.json").write_text("{}")
    built = "drawn from ImageNet by `data build imagenet9`, not the published images"
    assert full.deviation(network) == f"ImageNet-9 train has 4 of 45,405 images and is {built}"
    monkeypatch.setattr("objectaware.studies.reproduce.scale.published_number", lambda images: 4)
    assert full.deviation(network) == f"ImageNet-9 train is {built}"
    train.with_name("train.json").unlink()
    assert full.deviation(network) is None
    assert full.deviation(training("moco_resnet18_coco")) is None, "images that are missing are no others"


def test_an_accuracy_on_a_single_class_is_not_compared(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfCoverage(_Stages):
        def run(self, context: Context, step: Step, results: Results) -> StageResult:
            parts = ("test", "size", "location", "rotation")
            whole = {"num_samples": 9, "num_classes": 4, "untested_classes": ["fish"]}
            values: Mapping[str, Any] = {
                "accuracies": dict.fromkeys(parts, 50.0),
                "coverage": {**dict.fromkeys(parts, whole), "test": {**whole, "num_classes": 1}},
            }
            return StageResult("id", context.services.storage, values, None, reused=False)

    class All(Full):
        def images_problem(self, images: Images) -> str | None:
            return None

        def deviation(self, node: Node) -> str | None:
            is_changed = isinstance(node, Planned) and node.recipe == "byol_resnet18_in9"
            return "a changed recipe" if is_changed else None

    _install(monkeypatch, OfCoverage())
    report = run_table(context, All(RECIPES, tmp_path), plan_table("bg-more-datasets", num_seeds=1))
    one_class = ("the pictures show a single class, and its recall is not an accuracy",)
    assert report.remarks((("MoCov2", "Baseline"), ("ObjectNet-9",))) == one_class
    assert report.remarks((("MoCov2", "Baseline"), ("SI-Score-9",))) == ()
    # Of a changed training are its own cells, and those of trainings with masks that it found.
    assert report.remarks((("BYOL", "Baseline"), ("ObjectNet-9",))) == ("a changed recipe", *one_class)
    assert report.remarks((("BYOL", "+BG-Mixup (CAM)"), ("SI-Score-9",))) == ("a changed recipe",)
    assert report.remarks((("BYOL", "+CutMix"), ("SI-Score-9",))) == ()
    compared = {place for place in report.measured if report.difference(place) is not None}
    assert {column for _, column in compared} == {("SI-Score-9",)}
    assert len(compared) == 10 - 2


@pytest.mark.parametrize("plan", PLANS, ids=_NAMES)
def test_every_smoke_stage_has_a_valid_configuration(plan: Any, smoke: Scale, tmp_path: Path) -> None:
    """What a training makes is stood in for by an address; the models refuse what does not fit together."""
    results = _AnyResult(tmp_path)
    for node in ordered(map(smoke.adapted, plan.nodes())):
        assert not isinstance(node, Published)
        if not isinstance(node, Planned):
            continue
        config = smoke.config(node, results)
        assert computing_stage(config).outputs is not None
        if node.kind == "pretrain":
            assert (config.backbone, config.seed) == ("resnet10_narrow", node.fields["seed"])
            assert config == smoke.config(node, None) or "masks" in node.fields["policy"]
        elif node.kind == "localize":
            assert config.image_size == 32
        elif node.kind == "linear":
            assert (config.num_penalties, config.holdout_fraction, config.holdout_size) == (3, 0.2, None)
        elif node.kind == "detection":
            # The recipe names a checkpoint of its own.
            assert config.checkpoint == "/runs/network"


@pytest.mark.parametrize("name", RECIPES_IN_USE)
def test_at_full_scale_a_training_is_its_recipe(name: str, tmp_path: Path) -> None:
    scale = Full(RECIPES, tmp_path)
    node = training(name, seed=2)
    config = scale.config(node, _AnyResult(tmp_path))
    recipe = yaml.safe_load((RECIPES / f"{name}.yaml").read_text())
    assert (config.method.name, config.backbone) == (recipe["method"], recipe["backbone"])
    policy: Any = recipe.get("policy", "none")
    assert config.policy.name == (policy if isinstance(policy, str) else policy["name"])
    assert config.num_epochs == (2000 if node.fields["data"].name in ("CUB-200-2011", "Flowers102") else 800)
    assert config.seed == 2
    assert getattr(config.policy, "masks", None) in (None, "ground_truth", str(Path("masks").absolute()))
    assert hasattr(config.policy, "masks") == (config.policy.name not in ("none", "mixup", "cutmix"))


class _AnyResult(dict[Node, StageResult]):
    def __init__(self, folder: Path) -> None:
        self._result = StageResult(
            "id",
            Storage.from_uri(folder),
            {"checkpoint": "/runs/network", "masks": "masks", "classifier": "classifier"},
            None,
            reused=False,
        )

    def __getitem__(self, node: Node) -> StageResult:
        return self._result


@pytest.mark.parametrize("plan", PLANS, ids=_NAMES)
def test_every_full_stage_has_a_valid_configuration(plan: Any, tmp_path: Path) -> None:
    scale = Full(RECIPES, tmp_path, networks=dict.fromkeys(PUBLISHED_NAMES, "network.pth"))
    results = _AnyResult(tmp_path)
    for node in plan.nodes():
        if _is(node, "localize") and "negatives" not in node.fields["localizer"]:
            config = scale.config(node, results)
            assert config.image_size == 224
            assert config.execution.record_iterations == ("execution" in node.fields)
        elif _is(node, "linear"):
            assert scale.config(node, results).image_size == 224
        elif _is(node, "localization"):
            assert list(scale.config(node, results).masks) == ["found"]


def test_every_figure_is_planned_from_what_its_file_says() -> None:
    for figure in load_figures():
        plan = plan_figure(figure.label)
        nodes = plan.nodes()
        recipes = {node.recipe for node in nodes if _is(node, "pretrain")}
        assert set(figure.trainings) == recipes
        assert {node.name for node in nodes if isinstance(node, Published)} == set(figure.published_networks)
        assert plan.stages or plan.images
    with pytest.raises(InputError, match="is not a figure of the paper"):
        plan_figure("loc-main")


def test_every_figure_has_a_drawing() -> None:
    assert set(DRAWINGS) == {figure.label for figure in load_figures()}


def test_without_data_nothing_runs_and_the_first_thing_missing_is_named(tmp_path: Path, context: Context) -> None:
    scale = Full(RECIPES, tmp_path)
    nodes = plan_table("bg-main").nodes()
    missing = obstacles(scale, nodes)
    assert set(missing) == set(nodes)
    assert all("original/train" in reason or "variant" in reason or "val" in reason for reason in missing.values())
    with pytest.raises(InputError, match="table = bg-main: cannot be computed"):
        run_table(context, scale, plan_table("bg-main"))


def test_a_published_network_is_missing_until_its_file_is_named(tmp_path: Path) -> None:
    node = Published("MoCo v2 ResNet-50 (ImageNet)")
    file = tmp_path / "moco.pth"
    assert "no file of it is named" in str(Full(RECIPES, tmp_path).problem(node))
    full = Full(RECIPES, tmp_path, networks={node.name: str(file)})
    assert "does not exist" in str(full.problem(node))
    file.write_bytes(b"")
    assert full.problem(node) is None
    assert full.address(node, {}) == str(file)


def test_every_part_of_a_data_set_is_one_of_the_catalog(tmp_path: Path) -> None:
    """At full scale, all layouts known and their fields valid; nothing lies there, which is told in one line."""
    full = Full(RECIPES, tmp_path)
    parts = {images for plan in PLANS for node in plan.nodes() for images in images_of(node)}
    parts |= {images for plan in PLANS for images in getattr(plan, "images", {}).values()}
    assert len(parts) > 100
    for images in parts:
        assert full.data(images).root.startswith(str(tmp_path))
        problem = full.images_problem(images)
        assert problem is not None
        assert "\n" not in problem


def test_names_in_the_files_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "names.yaml"
    file.write_text(f"{PUBLISHED_NAMES[0]}: /weights.pth\n")
    assert read_names(file, "networks", PUBLISHED_NAMES) == {PUBLISHED_NAMES[0]: "/weights.pth"}
    file.write_text("coco: /sets/coco\n")
    assert read_names(file, "datasets") == {"COCO": "/sets/coco"}
    with pytest.raises(InputError, match="networks = coco: is not used by any table"):
        read_names(file, "networks", PUBLISHED_NAMES)
    with pytest.raises(InputError, match="does not exist"):
        read_names(tmp_path / "none.yaml", "datasets")
    assert read_names(None, "datasets") == {}


def test_hours_are_images_times_epochs_over_throughput(tmp_path: Path) -> None:
    scale = Full(RECIPES, tmp_path)
    rates = stated_rates((100, 25))
    machine = Machine.of(rates)
    small = cost_of(scale, training("moco_resnet18_coco"), rates, machine)
    large = cost_of(scale, training("byol_resnet50_coco"), rates, machine)
    assert small.gpu_hours == pytest.approx(118_287 * 800 / 100 / 3600)
    assert large.gpu_hours == pytest.approx(4 * small.gpu_hours)
    masks = training("moco_resnet18_coco_object_crop").fields["policy"]["masks"]
    found = cost_of(scale, masks, rates, machine)
    assert found.gpu_hours == pytest.approx(118_287 * 10 / (8 * 100) / 3600)
    assert found.cpu_hours == pytest.approx(118_287 * 0.048 / 3600)
    assert found.disk_bytes == 118_287 * 20_000
    saliencies = {
        node.fields["localizer"]["name"]: cost_of(scale, node, rates, machine).gpu_hours
        for node in plan_table("loc-saliency").nodes()
        if _is(node, "localize") and node.fields["data"].name == "ImageNet"
    }
    assert saliencies.pop("contracam") == pytest.approx(50_000 / (8 * 25) / 3600)
    # The gradient at the pixels takes three passes, and ten are averaged.
    assert list(saliencies.values()) == [pytest.approx(30 * 50_000 / (8 * 25) / 3600)] * 2


def test_a_plan_tells_what_is_done_and_what_is_not(
    smoke: Scale, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first training is finished; what follows from it is not."""
    plan = plan_table("loc-iter")
    nodes = ordered(map(smoke.adapted, plan.nodes()))
    first = next(node for node in nodes if _is(node, "pretrain"))

    class OneDone(_Stages):
        def run(self, context: Context, step: Step, results: Results) -> StageResult:
            node = step.name
            if node == first:
                return StageResult("id", context.services.storage, {"checkpoint": "x", "masks": "x"}, None, reused=True)
            raise NotFinishedError

    _install(monkeypatch, OneDone())
    done = finished(next_command(context, only_finished=True), smoke, nodes, {})
    report = plan_report(smoke, "loc-iter", nodes, stated_rates(), done=done)
    states = [line.state for line in report.stages]
    assert states.count("done") == 1
    assert states.count("to do") == len(states) - 1
    lines = report.text().splitlines()
    assert all(line.startswith(f"{SMOKE_MARK} | ") for line in lines)
    assert any("COCO (val, train): there" in line or "COCO (train, val): there" in line for line in lines)


def test_a_context_for_plans_computes_nothing(context: Context) -> None:
    config = PretrainConfig.model_validate({"data": {"root": "photos"}})

    def run(context: Context) -> StageResult:
        return run_as(context, "pretrain", "title", config, {}, lambda *_: {"answer": 42}, tags={})

    plans = next_command(context, only_finished=True)
    with pytest.raises(NotFinishedError):
        run(plans)
    run(context)
    assert run(plans).reused


def test_smoke_puts_every_image_on_scenes_and_shifted_sets_on_variants() -> None:
    smoke = Smoke(RECIPES, Path("/single"), Path("/multi"))
    assert smoke.data(Images("COCO", "val")).layout == "coco"
    assert smoke.data(Images("CIFAR-10", "test")).variant == "original"
    assert smoke.data(Images("Backgrounds Challenge", "mixed_rand")).variant == "mixed_rand"
    shifted = {smoke.data(Images("ImageNet-C-9", f"fog-{severity}")).variant for severity in range(1, 6)}
    assert len(shifted) == 5
    assert smoke.path(("class_accuracies", "test", "airplane")) == ("class_accuracies", "test", "02_square")


def test_negatives_are_the_pictures_that_show_a_class(smoke: Scale) -> None:
    shown = smoke.images_of_class(ImagesOfClass(ClassName("giraffe"), Images("COCO", "val")))
    # Each of nine pictures is of another class, and shows one or two of its companions' besides.
    assert "000000000001.jpg" in shown
    assert 1 <= len(shown) < 9
    assert shown == tuple(sorted(shown))


def test_localize_and_linear_configurations_hold_what_the_plan_says(tmp_path: Path) -> None:
    scale, results = Full(RECIPES, tmp_path), _AnyResult(tmp_path)
    node = next(n for n in plan_table("loc-batch").nodes() if _is(n, "localize") and n.fields.get("group_size") == 4)
    config = scale.config(node, results)
    assert isinstance(config, LocalizeConfig)
    assert (config.group_size, config.crf, config.localizer) == (4, True, ContraCAM(num_iterations=10, expansion=2))
    linear = next(
        n for n in plan_table("multi-main").nodes() if _is(n, "linear") and n.fields["train"].name == "Food-101"
    )
    evaluation = scale.config(linear, results)
    assert isinstance(evaluation, LinearConfig)
    assert (evaluation.holdout_size, evaluation.num_penalties, evaluation.center_crop) == (7575, 45, True)


def _linear_nodes(label: str, protocol: Protocol) -> list[Planned]:
    return [node for node in plan_table(label, num_seeds=1, protocol=protocol).nodes() if _is(node, "linear")]


@pytest.mark.parametrize("label", ["multi-main", "bg-main", "multi-shift", "loc-cam-full"])
def test_the_official_protocol_changes_every_linear_evaluation_and_nothing_else(label: str) -> None:
    before, after = _linear_nodes(label, "paper"), _linear_nodes(label, "official")
    assert before
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert one != other
        added = {name: value for name, value in other.fields.items() if one.fields.get(name) != value}
        own = {"validation": Images("Flowers102", "val")} if one.fields["train"].name == "Flowers102" else {}
        assert added == {"compat": "official", **own}
    others = [
        {node for node in plan_table(label, protocol=protocol).nodes() if _is(node, "pretrain")}
        for protocol in ("paper", "official")
    ]
    assert others[0] == others[1]


@pytest.mark.parametrize("label", ["loc-main", "multi-det", "multi-bias"])
def test_the_official_protocol_is_refused_where_it_changes_nothing(label: str) -> None:
    with pytest.raises(InputError, match=f"protocol = official: changes nothing in {label}"):
        plan_table(label, protocol="official")


def test_the_official_protocol_has_valid_configurations_at_both_scales(smoke: Scale, tmp_path: Path) -> None:
    full = Full(RECIPES, tmp_path, networks=dict.fromkeys(PUBLISHED_NAMES, "network.pth"))
    results = _AnyResult(tmp_path)
    for label in ("multi-main", "bg-main"):
        for node in _linear_nodes(label, "official"):
            flowers = node.fields["train"].name == "Flowers102"
            published, scenes = full.config(node, results), smoke.config(smoke.adapted(node), results)
            for config in (published, scenes):
                assert isinstance(config, LinearConfig)
                assert (config.compat, config.refit) == ("official", False)
                assert (config.validation is not None) == flowers
            if flowers:
                assert published.validation == full.data(Images("Flowers102", "val"))
                assert published.holdout_size is None


def test_a_figure_follows_the_protocol() -> None:
    stages = plan_figure("intro", protocol="official").stages
    assert all(node.fields["compat"] == "official" for node in stages.values())
    with pytest.raises(InputError, match="protocol = official: changes nothing in figure:loc-neg"):
        plan_figure("loc-neg", protocol="official")


def test_a_study_names_its_protocol(smoke: Scale, context: Context, stages: _Stages) -> None:
    plan = plan_table("multi-second", protocol="official")
    report = run_table(context, smoke, plan)
    assert report.text().splitlines()[0].startswith(f"{SMOKE_MARK} | multi-second, official protocol: ")
    assert report.markdown().startswith(f"# multi-second, official protocol ({SMOKE_MARK})")
    assert stages.parent is not None
    assert stages.parent.opening.name == f"multi-second, official protocol ({SMOKE_MARK})"
    nodes = ordered(map(smoke.adapted, plan.nodes()))
    planned = plan_report(smoke, "multi-second", nodes, stated_rates(), done=(), protocol=plan.protocol)
    lines = planned.text().splitlines()
    assert lines[0].startswith(f"{SMOKE_MARK} | multi-second, official protocol: ")
    assert sum(line.endswith("on CIFAR-10, official protocol") for line in lines) == 6
    assert planned.as_data()["protocol"] == "official"
