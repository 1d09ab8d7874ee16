"""Choices of a recipe by name: options with variants, such as the method of a training, and backbones.

An option is a subclass of `Variant` that names the package of its variants. A variant is a subclass of the option with
`name: Literal["…"]`, its own fields and their defaults. Defining the class registers it; there is no table to edit:

    class MethodConfig(Variant):            # the option
        package = "objectaware.methods"
        default_name = "moco"

    class MoCoConfig(MethodConfig):         # a variant, in any file of objectaware/methods/
        name: Literal["moco"] = "moco"
        temperature: float = 0.2

    class PretrainConfig(WithOptions):      # a configuration with the option
        method: MethodConfig = MethodConfig.default_field()

An entry point of the group `objectaware.variants` names the module of a variant in another distribution. Modules are
imported when the first value is validated, not before, since code that only reads recipes does not need torch.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from objectaware.data.dataset import DataConfig, layout_named, layouts
from objectaware.errors import InputError
from objectaware.model import MasksAddress, Model, load_entry_points
from objectaware.process import import_modules

if TYPE_CHECKING:
    from objectaware.config.training import PretrainConfig
    from objectaware.data.dataset import TrainingImages


def _literal_name(variant: type[Model]) -> str | None:
    """Return the name that a class gives its variant; None for an option or another base of several variants."""
    annotation: Any = variant.model_fields["name"].annotation if "name" in variant.model_fields else None
    return str(get_args(annotation)[0]) if get_origin(annotation) is Literal else None


class Variant(Model):
    """Base of all options and their variants.

    A field typed by an option takes a name, a mapping of a variant's fields with its `name`, or a variant. A mapping
    without a name belongs to the option's default variant. The field serialises as the variant, with all its fields.

    Attributes:
        package: Package whose modules define the option's variants.
        default_name: Name of the default variant.
        former_names: Fields that recipes used to have beside the option under another name: new names by old names.
        name: Name of the variant.
    """

    package: ClassVar[str]
    default_name: ClassVar[str]
    former_names: ClassVar[Mapping[str, str]] = {}
    _registered: ClassVar[dict[str, type[Variant]]]

    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Register a variant with its option, or open the registry of an option."""
        if Variant in cls.__bases__:
            cls._registered = {}
        name = _literal_name(cls)
        if name is None:
            return
        known = cls._registered.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            problem = f"is the name of two variants: {known.__module__}.{known.__qualname__} and "
            remedy = "Rename one of them, or uninstall its package."
            raise InputError("name", name, f"{problem}{cls.__module__}.{cls.__qualname__}", remedy)
        cls._registered[name] = cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler, /) -> CoreSchema:  # noqa: ANN401 - pydantic's own
        """Validate a field typed by an option as one of its variants."""
        if _literal_name(cls) is not None:
            return handler(source)
        # `any` serialises by the value's own class. The declared class would drop the fields of the variant.
        return core_schema.no_info_plain_validator_function(
            cls._validated, serialization=core_schema.simple_ser_schema("any")
        )

    @classmethod
    def _validated(cls, value: object) -> Variant:
        if isinstance(value, cls):
            return value
        fields = {"name": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping):
            names = ", ".join(cls.variants())
            raise PydanticCustomError("option", "give a name, or a mapping with one: {names}", {"names": names})
        name = fields.get("name") or cls.default_name
        variant = cls.variants().get(str(name))
        if variant is None:
            unknown = PydanticCustomError("unknown_name", "choose {names}", {"names": " | ".join(cls.variants())})
            details = InitErrorDetails(type=unknown, loc=("name",), input=name)
            raise ValidationError.from_exception_data(cls.__name__, [details])
        return variant.model_validate({**fields, "name": name})

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """Return all variants of an option by name, in alphabetical order.

        Raises:
            InputError: A module of another distribution that registers variants cannot be imported.
        """
        import_modules(cls.package)
        load_entry_points()
        found: dict[str, Any] = cls._registered
        return {name: found[name] for name in sorted(found) if issubclass(found[name], cls)}

    @classmethod
    def default_field(cls) -> Any:  # noqa: ANN401 - as pydantic's Field
        """Return the default of a field typed by an option: the default variant, which is made when it is needed."""
        return Field(default_factory=lambda: cls.variants()[cls.default_name].model_validate({}))


def option_fields(model: type[Model]) -> dict[str, type[Variant]]:
    """Return the fields of a model that are typed by an option, each with its option."""
    return {
        name: info.annotation
        for name, info in model.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Variant)
    }


def default_names(model: type[Model]) -> dict[str, str]:
    """Return the fields of a model that are typed by an option, each with the name of its default variant.

    `objectaware.recipes` needs them, so that a recipe's `method: moco` stands for `method: {name: moco}`.
    """
    return {name: option.default_name for name, option in option_fields(model).items()}


class WithOptions(Model):
    """Base of a configuration with options. It refuses a variant's field beside its option, and names its place."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_flat_fields(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        options = option_fields(cls)
        places = {name: _place_of(str(name), options) for name in values if name not in cls.model_fields}
        details = [
            InitErrorDetails(type=PydanticCustomError("moved", place), loc=(name,), input=values[name])
            for name, place in places.items()
            if place is not None
        ]
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return values


def _place_of(name: str, options: Mapping[str, type[Variant]]) -> Any:  # noqa: ANN401 - a LiteralString for pydantic
    """Return the correct form of a flat field that belongs to an option's variants; None for any other field."""
    for field, option in options.items():
        variants = option.variants().values()
        former = {old: new for variant in variants for old, new in variant.former_names.items()}
        new = former.get(name, name)
        if any(new in variant.model_fields for variant in variants):
            return f"is named {field}.{new}: write {field}: {{{new}: …}} in a recipe, --{field}.{new} as an option"
    return None


class ViewConfig(NamedTuple):
    """Settings for cutting one of the views of each sample.

    Attributes:
        size: Side in pixels.
        min_crop_scale: Smallest fraction of the image that a crop covers.
        max_crop_scale: Largest fraction of the image that a crop covers.
    """

    size: int
    min_crop_scale: float
    max_crop_scale: float = 1.0


class MethodConfig(Variant):
    """Base of all methods' configuration. A subclass holds everything that other code has to know about its method.

    Attributes:
        title: Name in figures and tables.
        needs_labels: Whether it learns from the images' classes.
        takes_mixtures: Whether its loss is defined for views that are mixtures of two samples.
        mix_probability: Default p_mix of the background policies; None if nobody has published one.
        averages_official_mixtures: Whether the official code of mixup weighs all its losses with the mean λ.
        num_views: Number of views of each sample, unless a subclass overrides `views`.
        smoke_fields: Fields for a training on a few hundred images, such as in `reproduce --scale smoke`.
    """

    package: ClassVar[str] = "objectaware.methods"
    default_name: ClassVar[str] = "moco"

    title: ClassVar[str]
    needs_labels: ClassVar[bool] = False
    takes_mixtures: ClassVar[bool] = False
    mix_probability: ClassVar[float | None] = None
    averages_official_mixtures: ClassVar[bool] = False
    num_views: ClassVar[int] = 2
    smoke_fields: ClassVar[Mapping[str, object]] = {}

    def build(self, backbone: str, *, num_classes: int) -> Any:  # noqa: ANN401 - Method is above configuration
        """Build the untrained `objectaware.methods.method.Method`.

        Args:
            backbone: Name of the backbone.
            num_classes: Number of classes in the data set, for a method that needs labels.
        """
        raise NotImplementedError

    def views(self, config: PretrainConfig) -> tuple[ViewConfig, ...]:
        """Return the settings for cutting each of a sample's views. Policies mix the first one.

        A method with multi-crop returns smaller views after those of `image_size`.
        """
        return (ViewConfig(config.image_size, config.min_crop_scale),) * self.num_views

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem with training this method with a configuration, or None."""
        if self.needs_labels and not layout_named(config.data.layout).labels:
            return f"the method {self.name} learns from labels, and the layout {config.data.layout} has none"
        return None


GROUND_TRUTH: Literal["ground_truth"] = "ground_truth"
"""Value in place of a mask store's address that stands for the data set's own masks or boxes."""


@dataclass(frozen=True)
class PolicyInputs:
    """Hold what a policy is built on.

    Attributes:
        data: The data set.
        images: The data set's opened images.
        method: Method that is trained.
        cache_folder: Local folder that the workers of a node share, for the mask store's copy.
    """

    data: DataConfig
    images: TrainingImages
    method: MethodConfig
    cache_folder: Path


class PolicyConfig(Variant):
    """Base of all policies' configuration. A subclass holds everything that other code has to know about its policy.

    Attributes:
        needs_whole_pictures: Whether it shows detail that a pack of shrunk pictures lacks.
    """

    package: ClassVar[str] = "objectaware.training.policies"
    default_name: ClassVar[str] = "none"

    needs_whole_pictures: ClassVar[bool] = False

    def build(self, inputs: PolicyInputs) -> Any:  # noqa: ANN401 - Policy is above configuration
        """Build the `objectaware.training.policies.base.Policy`.

        Raises:
            InputError: The masks do not fit the images.
        """
        raise NotImplementedError

    def open_truth(self, data: DataConfig, images: TrainingImages) -> Any:  # noqa: ANN401 - of any class of masks or boxes
        """Open only the true boxes or masks that `build` takes; return None if it takes none.

        Raises:
            InputError: The boxes or masks are missing or malformed.
        """
        return None

    def completed(self, method: MethodConfig) -> Self:
        """Return the policy with the defaults that depend on the method, so that a stored recipe is complete."""
        return self

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem with training with this policy and a configuration, or None."""
        return None


class MaskedPolicyConfig(PolicyConfig):
    """Base of policies that know where the objects are.

    Attributes:
        takes: Part of a data set's truth that the policy takes: its masks, its boxes, or nothing.
        masks: Mask store from which the policy takes masks or boxes; or `ground_truth` for the data set's own.
    """

    takes: ClassVar[Literal["masks", "boxes"] | None] = None

    masks: Literal["ground_truth"] | MasksAddress

    @classmethod
    def true_layouts(cls) -> tuple[str, ...]:
        """Return the layouts of data sets from which the policy takes true masks or boxes."""
        if cls.takes is None:
            return ()
        return tuple(layout.name for layout in layouts() if getattr(layout, f"true_{cls.takes}"))

    def problem(self, config: PretrainConfig) -> str | None:
        """Return the problem, or None. Only some data sets have true masks or boxes."""
        if self.masks != GROUND_TRUTH:
            return None
        place = f"policy.masks = ground_truth of {self.name}"
        names = self.true_layouts()
        if not names:
            return f"{place} has no meaning: the policy's masks are soft; give a mask store"
        if config.data.layout not in names and not layout_named(config.data.layout).is_pack:
            named = " or ".join(names)
            return f"{place} needs data.layout {named}, or a pack of it, not {config.data.layout}"
        return None


LearningRate = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Variant):
    """Base of all optimizers' configuration. Each optimizer has default learning rates of its own.

    Attributes:
        base_learning_rate: Learning rate at a batch size of 256, scaled linearly with the batch size.
        final_learning_rate: Learning rate at the end of the cosine; it is not scaled.
        weight_decay: Weight decay.
    """

    package: ClassVar[str] = "objectaware.training.optimizers"
    default_name: ClassVar[str] = "sgd"
    former_names: ClassVar[Mapping[str, str]] = {"sgd_momentum": "momentum"}

    base_learning_rate: LearningRate
    final_learning_rate: NonNegative
    weight_decay: NonNegative

    def build(self, groups: Iterable[Any]) -> Any:  # noqa: ANN401 - torch and methods are above configuration
        """Build the `torch.optim.Optimizer`. The loop sets the learning rate before each step.

        Args:
            groups: The `objectaware.methods.method.ParameterGroup`s of a method.
        """
        raise NotImplementedError


BACKBONE_NAMES = ("resnet18", "resnet50", "resnet10_narrow")
"""Networks of `objectaware.methods.backbones`, where a function of the same name builds each. It is not imported here,
so that reading a recipe imports neither torch nor timm."""

_TIMM = "objectaware.methods.timm_backbone:TimmBackbone"
"""Class that builds the networks of timm. Its static method `check` refuses names that timm does not know."""


def check_backbone(name: str) -> str:
    """Return the name of a backbone if the backbone exists. Only a name of a network of timm imports timm.

    Raises:
        InputError: There is no such backbone. The message lists the backbones.
    """
    library, _, network = name.partition("/")
    if library == "timm" and network:
        pkgutil.resolve_name(_TIMM).check(network)
    elif name not in BACKBONE_NAMES:
        closest = difflib.get_close_matches(name, BACKBONE_NAMES, n=1)
        instead = f"Did you mean {closest[0]}? The backbones are" if closest else "Use one of"
        remedy = f"{instead} {', '.join(BACKBONE_NAMES)}, and any network of timm, such as timm/vit_small_patch16_224."
        raise InputError("backbone", name, "is not known", remedy)
    return name


def backbone_builder(name: str) -> tuple[Any, tuple[str, ...]]:
    """Return the function or class that builds a backbone, and the arguments for calling it.

    Raises:
        InputError: There is no such backbone.
    """
    if check_backbone(name) in BACKBONE_NAMES:
        return pkgutil.resolve_name(f"objectaware.methods.backbones:{name}"), ()
    return pkgutil.resolve_name(_TIMM), (name.removeprefix("timm/"),)


BackboneName = Annotated[str, AfterValidator(check_backbone)]
"""`resnet18`, `resnet50`, `resnet10_narrow`, or `timm/` and the name of any network of timm."""
