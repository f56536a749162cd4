"""Read a sweep file and list its cells, the products of its axes. A cell has a `Spec` and the file name of its result.

::

    name = "k-on-digits"

    [fixed]                          # spec keys that all cells share
    dataset = "digits"
    seeds = 3

    [grid]                           # axes: each key has a list of values
    epsilon = [0.1, 1.0, inf]

    [[grids]]                        # separate products, each also over the axes of [grid]
    learner = ["pillar", "jl"]
    "learner.k" = [10, 20, 40]       # an option of that component

    [[grids]]
    learner = ["dp-sgd"]             # has no k

    [plot]                           # how the results are drawn; see `analysis.plots`
    x = "learner.k"
    lines = "epsilon"
    panels = ["learner"]
    without = "all dimensions"

Axes vary in the file's order, the last one fastest; those of [grid] vary slowest. Grids may overlap: a cell that two of
them describe is run once, at its first position.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from dpbench.analysis import plots
from dpbench.analysis.formula import collect_numeric_values
from dpbench.analysis.plots import Plot
from dpbench.errors import DpbenchError, SpecError
from dpbench.records.protocol import CONCAT, PIXELS, Component, Protocol
from dpbench.records.result import make_old_result_name, make_result_name
from dpbench.records.spec import COMPONENTS, Spec, add_default_extractor, has_extractor_key, make_spec
from dpbench.registry import Registry
from dpbench.registry.components import resolve
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import Record, describe_validation_error

MAX_CELLS = 100_000  # more is a mistake, and would take hours to list before the first one runs


class SweepFile(Record):
    """The content of a sweep file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="what the sweep is called")
    fixed: dict[str, Any] = Field(default={})
    grid: dict[str, Any] = Field(default={})
    grids: list[dict[str, Any]] = Field(default=[])
    plot: Plot | None = None


@dataclass(frozen=True)
class Cell:
    """A run of a sweep."""

    spec: Spec  # as requested, before defaults are filled in
    digest: str  # of the spec with every option filled in
    values: Mapping[str, Any]  # axis -> value
    numbers: Mapping[str, float] = field(default_factory=dict, compare=False)  # of the spec, options as `dataset.n`

    @property
    def request(self) -> str:
        """The spec as JSON for a worker, without keys that the user did not set: some defaults depend on the data."""
        return self.spec.model_dump_json(exclude_unset=True)

    @property
    def file_name(self) -> str:
        """The file name of the cell's result; see `Result.file_name`."""
        return make_result_name(self.spec, self.digest)

    @property
    def file_names(self) -> tuple[str, str]:
        """The file names that the result may have; see `Result.file_names`."""
        return self.file_name, make_old_result_name(self.spec, self.digest)

    def __str__(self) -> str:
        return format_axis_values(self.values)


@dataclass(frozen=True)
class SweepGrid:
    """All cells of a sweep, without duplicates."""

    name: str
    cells: tuple[Cell, ...]
    duplicates: int  # how many cells were described again
    plot: Plot | None = None  # how its results are drawn

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of all cells, in the order of the file."""
        return tuple(dict.fromkeys(axis for cell in self.cells for axis in cell.values))


def read_grid(definition: Path | Mapping[str, Any], plugins: Registry) -> SweepGrid:
    """Return the cells that a sweep file, or a mapping with the same keys, describes.

    Raises:
        SpecError: a key is unknown, an axis has no values, or a cell is invalid (the message names its values).
    """
    origin = str(definition) if isinstance(definition, Path) else "the sweep"
    content = read_toml(definition, "spec") if isinstance(definition, Path) else definition
    written = _parse_sweep_content(content, origin)
    fixed = _flatten_keys(written.fixed, f"[fixed] of {origin}")
    shared = _read_axes(written.grid, f"[grid] of {origin}")
    products = [_read_axes(grid, f"[[grids]] of {origin}") for grid in written.grids] or [{}]
    if isinstance(definition, Path):
        fixed, products = _add_default_extractors(fixed, shared, products, origin)
    if not any([shared, *products]):
        raise SpecError(f"Expected an axis in [grid] or [[grids]] of {origin}, such as epsilon = [0.5, 1.0]; got none.")
    total = sum(math.prod(map(len, [*shared.values(), *product.values()])) for product in products)
    if total > MAX_CELLS:
        raise SpecError(f"Expected at most {MAX_CELLS:,} cells, got {total:,} in {origin}. Drop some values.")
    cells: dict[tuple[str, bool], Cell] = {}  # delta that follows from the data may turn out to be another
    for own in products:
        for values in _combine_axis_values(fixed, shared, own, origin):
            cell = _make_cell(fixed, values, origin, plugins)
            cells.setdefault((cell.digest, "delta" in cell.spec.model_fields_set), cell)
    if written.plot is not None:
        plots.check_plot(written.plot, [(cell.values, cell.numbers) for cell in cells.values()], origin)
    return SweepGrid(written.name, tuple(cells.values()), total - len(cells), written.plot)


def _parse_sweep_content(content: Mapping[str, Any], origin: str) -> SweepFile:
    if "learner" in content and not content.keys() & SweepFile.model_fields.keys():
        raise SpecError(
            f"Expected a sweep in {origin}, got the spec of one run. Run it with: dpbench run --spec {origin}"
        )
    try:
        return SweepFile(**content)
    except ValidationError as error:
        raise SpecError(describe_validation_error(error, origin, {"": SweepFile, "plot": Plot})) from None


def _add_default_extractors(
    fixed: dict[str, Any], shared: Mapping[str, Any], products: list[dict[str, list[Any]]], origin: str
) -> tuple[dict[str, Any], list[dict[str, list[Any]]]]:
    """Add the default extractor to each product that names none or, if no product names one, to the fixed keys."""
    silent = [not has_extractor_key([*fixed, *shared, *own]) for own in products]
    if all(silent):
        return add_default_extractor(fixed, origin), products
    filled = {key: [value] for key, value in add_default_extractor({}, origin).items()} if any(silent) else {}
    return fixed, [{**own, **(filled if alone else {})} for own, alone in zip(products, silent, strict=True)]


def _flatten_keys(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Check the keys, and flatten `learner = {k = 1}` to `learner.k` (TOML reads `learner.k = 1` as a table)."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        nested = isinstance(value, Mapping) and (key in COMPONENTS and "name" not in value)
        flat |= {f"{key}.{option}": choice for option, choice in value.items()} if nested else {key: value}
    for key in flat:
        root, dot, option = key.partition(".")
        if root not in Spec.model_fields:
            raise SpecError(format_unknown_name_message("key", key, Spec.model_fields, origin))
        if dot and (root not in COMPONENTS or not option):
            raise SpecError(
                f"Expected an option of {', '.join(COMPONENTS)} in {origin}, such as learner.k, got {key!r}."
            )
    return flat


def _read_axes(table: Mapping[str, Any], origin: str) -> dict[str, list[Any]]:
    axes = _flatten_keys(table, origin)
    for key, values in axes.items():
        if not isinstance(values, list | tuple):
            raise SpecError(
                f"Expected a list of values for {key!r} in {origin}, got {values!r}. A single value belongs in [fixed]."
            )
        if not values:
            raise SpecError(f"Expected at least one value for {key!r} in {origin}, got none.")
    return axes


def _combine_axis_values(
    fixed: Mapping[str, Any],
    shared: Mapping[str, Sequence[Any]],
    product_axes: Mapping[str, Sequence[Any]],
    origin: str,
) -> Iterator[dict[str, Any]]:
    for key in [*(fixed.keys() & {*shared, *product_axes}), *(shared.keys() & product_axes.keys())]:
        raise SpecError(f"Expected {key!r} in only one of [fixed], [grid] and [[grids]] of {origin}, got it in two.")
    axes = {**shared, **product_axes}
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _make_cell(fixed: Mapping[str, Any], values: Mapping[str, Any], origin: str, plugins: Registry) -> Cell:
    where = f"cell {format_axis_values(values)} of {origin}"
    try:
        spec = make_spec(_nest_options({**fixed, **values}, where), where)
        whole = resolve(spec, plugins).spec
    except DpbenchError as error:
        raise error if where in str(error) else SpecError(f"In {where}: {error}") from error
    if "extractor" not in spec.model_fields_set:  # pixels by default are refused where images are large: by the worker
        hidden = whole.extractor == Component(name=PIXELS, options=whole.extractor.options)
        spec = spec.with_default("extractor", whole.extractor, given=not hidden)
    return Cell(spec, whole.digest, dict(values), collect_numeric_values(whole.model_dump()))


def _nest_options(flat_keys: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the keys of `Spec`, with each option moved into its component."""
    keys = {key: value for key, value in flat_keys.items() if "." not in key}
    for key, value in flat_keys.items():
        root, dot, option = key.partition(".")
        if not dot:
            continue
        owner = keys.get(root, Spec.model_fields[root].default)
        parse = Component.parse_extractor if root == "extractor" else Component.parse
        owner = parse(owner) if isinstance(owner, str) else owner
        if isinstance(owner, Mapping):
            with suppress(ValidationError):
                owner = Component(**owner)
        if not isinstance(owner, Component):
            raise SpecError(f"Expected {root!r} beside {key!r} in {origin}, got {owner!r}: whose option is it?")
        if owner.name == CONCAT:
            raise SpecError(f"Expected one {root} beside {key!r} in {origin}, got {str(owner)!r}: whose option is it?")
        if option in owner.options:
            raise SpecError(
                f"Expected option {option!r} once in {origin}, got it in {root} = {str(owner)!r} and in {key!r}."
            )
        keys[root] = Component(name=owner.name, options={**owner.options, option: value})
    return keys


def format_axis_values(values: Mapping[str, Any]) -> str:
    """Return the axis values of a cell as text, like `learner=jl, epsilon=1.0`."""
    return ", ".join(f"{axis}={value}" for axis, value in values.items())


def make_sweep_definition(
    values: Mapping[str, Any], axes: Mapping[str, Sequence[Any]], plugins: Registry
) -> dict[str, Any]:
    """Return the definition of a sweep over `axes`; reference learners run only without privacy (epsilon infinity)."""
    fixed = {name: value for name, value in values.items() if name not in axes}
    learners = list(axes.get("learner", ()))
    ceilings = [learner for learner in learners if plugins.find("learner", _get_learner_name(learner)).cls.reference]
    if not ceilings:
        return {"name": "run", "fixed": fixed, "grid": dict(axes)}
    shared = {name: values for name, values in axes.items() if name not in {"learner", "epsilon"}}
    epsilons = list(axes.get("epsilon", [fixed.pop("epsilon", Protocol.model_fields["epsilon"].default)]))
    others = [learner for learner in learners if learner not in ceilings]
    grids = [{"learner": others, "epsilon": epsilons}] * bool(others) + [{"learner": ceilings, "epsilon": [math.inf]}]
    return {"name": "run", "fixed": fixed, "grid": shared, "grids": grids}


def _get_learner_name(learner: str | Mapping[str, Any] | Component) -> str:
    if isinstance(learner, str):
        return learner.partition(":")[0]
    return learner.name if isinstance(learner, Component) else str(learner.get("name"))
