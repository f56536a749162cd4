"""`dpbench.run`, `check` and `figure`: shell commands as functions that take Python values, classes and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.analysis.reader import StoredResult
from dpbench.api import Dataset, Extractor, Learner
from dpbench.errors import DpbenchError, SpecError
from dpbench.models import Model
from dpbench.notebook.arrays import UserArrayDataset
from dpbench.notebook.outcome import DEFAULT_FOLDER, Results
from dpbench.records.journal import RunJournalFolder
from dpbench.records.metrics import RankMetric
from dpbench.records.protocol import CONCAT
from dpbench.records.spec import AXES, COMPONENTS, Spec
from dpbench.registry import KINDS, UNPACKAGED, Registry, load
from dpbench.registry.components import component_kind_of_role, make_component_record
from dpbench.support.fields import list_changed_fields
from dpbench.support.files import check_writable_folder
from dpbench.support.paths import is_installed_package
from dpbench.sweep.conduct import get_sweep_overview
from dpbench.sweep.grid import Cell, make_sweep_definition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpbench.harness.fit import SeedFit
    from dpbench.harness.prepare import PreparedRun
    from dpbench.testing.checking import LawOutcome

LearnerLike = str | Learner | type[Learner]
DatasetLike = str | Dataset | type[Dataset]
ExtractorLike = str | Extractor | type[Extractor]


def run(
    learner: LearnerLike | Sequence[LearnerLike],
    dataset: DatasetLike | Sequence[DatasetLike] = "digits",
    extractor: ExtractorLike | Sequence[ExtractorLike] | None = None,
    epsilon: float | Sequence[float] = 1.0,
    *,
    delta: float | None = None,
    accountant: str | None = None,
    public_fraction: float | None = None,
    public_dataset: DatasetLike | None = None,
    public_labels: bool = False,
    train_fraction: float | Sequence[float] | None = None,
    imbalance: float | None = None,
    unit: str | None = None,
    metric: RankMetric = "accuracy",
    split_seed: int | None = None,
    allow_overlap: bool = False,
    seeds: int | Sequence[int] = 5,
    secure_rng: bool = False,
    search: str | Mapping[str, Any] | None = None,
    out: str | Path = DEFAULT_FOLDER,
    device: str = "auto",
    keep_models: bool | None = None,
) -> Results:
    """Train once per seed, score on the test split and write a JSON result to `out`; lists run every combination.

    A component is a name with options as in the shell ("pillar:k=40"), a plugin class, or an instance; it does not have
    to be installed. With lists, combinations that are already in `out` are not run again, unless they use a class of
    your own or the code or the data have changed. The non-private baseline runs once, at ε = ∞.

    Args:
        learner: a learner, or a list of learners.
        dataset: a dataset, a list of datasets, or your own arrays (`dpbench.dataset`).
        extractor: an extractor, or a list; "A+B" joins the features of both; with vectors, pixels uses them unchanged.
            By default the dataset's own.
        epsilon: target ε in nats, positive; `math.inf` for no privacy.
        delta: target δ, well below 1/n; by default 1e-5, or the largest power of ten of at most 1/(2n) if that is
            smaller.
        accountant: pld (the default), rdp or prv.
        public_fraction: share of the training split that is public; by default 0.1.
        public_dataset: dataset to use as public data instead.
        public_labels: let the learner read public labels.
        train_fraction: share of the private split to keep.
        imbalance: images kept of the first class for every image of the last.
        unit: unit of the guarantee, such as "patient", if the dataset identifies it; by default the dataset's own.
        metric: metric that learners optimise and that results are compared by, such as "balanced_accuracy".
        split_seed: seed of the public and private split.
        allow_overlap: allow public images that are also private; no board accepts the result.
        seeds: number of seeds, counted from 0, or a list of seeds.
        secure_rng: draw samples and noise from the operating system, exactly; needs dpbench-vision[secure].
        search: rule of a search for settings, like "public-validation", or a mapping with `rule`, `space`, `tries`.
        out: folder of the results.
        device: auto, cpu, cuda, cuda:1 ...
        keep_models: keep each seed's model for `Results.model`. By default only
            models of `secure_rng` runs, which cannot be fitted again; others are refitted when you ask for them.

    Raises:
        DpbenchError: the run failed; the message states the reason. If some of several runs fail, the finished
            results are kept and the table lists the failures.
    """
    said = {name: value for name, value in locals().items() if name in Spec.model_fields and value is not None}
    axes = {name: _convert_to_list(said.pop(name)) for name in AXES if name in said}
    for name, values in axes.items():
        if not values:
            raise SpecError(f"Expected at least one value for {name!r}, got {values!r}.")
    if isinstance(seeds, str) or not isinstance(seeds, Iterable | int):
        raise SpecError(f"Expected seeds as a whole number, or a list of them, got {seeds!r}.")
    plugins = _register_user_classes(
        load(), {name: axes.get(name) or _convert_to_list(said.get(name)) for name in COMPONENTS}
    )
    axes = {
        name: [_make_spec_value(value) if name in COMPONENTS else value for value in values]
        for name, values in axes.items()
    }
    several = {name: values for name, values in axes.items() if len(values) > 1 or name == "learner"}
    said |= {name: values[0] for name, values in axes.items() if name not in several}
    said |= {"seeds": seeds if isinstance(seeds, int) else list(seeds)}
    if public_dataset is not None:
        said["public_dataset"] = _make_spec_value(public_dataset)
    if isinstance(search, str):
        said["search"] = {"rule": search}
    asked = make_sweep_definition(said, several, plugins)
    return _run_cells(asked, Path(out), device, plugins, secure_rng if keep_models is None else keep_models)


def check(component: LearnerLike | DatasetLike | ExtractorLike) -> dict[str, str | None]:
    """Test a component against the laws, as `dpbench check` does; return each law's violation, or None if it holds.

    For a law that had nothing to compare, the text is "Not tested" with the reason.

    Args:
        component: a name with options ("pillar:k=8"), or your own class or instance, which need not be installed.
            An instance is tested with its settings, a class with its defaults.

    Raises:
        DpbenchError: no component has this name, or plugins may not register a class of this kind.
    """
    from dpbench.testing.checking import check_instance, check_laws

    if isinstance(component, str):
        return _collect_complaints_by_law(check_laws(load(), component))
    cls = component if isinstance(component, type) else type(component)
    kind = next((kind for kind, base in KINDS.items() if issubclass(cls, base)), None)
    if kind is None:
        bases = ", ".join(f"dpbench.{base.__name__}" for base in KINDS.values())
        raise SpecError(f"Expected a component by name, or a class or an instance of {bases}; got {component!r:.80}.")
    plugins = _register_user_classes(load(), {kind: [component]})
    if cls is component:
        return _collect_complaints_by_law(check_laws(plugins, cls.name))
    return _collect_complaints_by_law(check_instance(kind, component, cls.name))


def _collect_complaints_by_law(outcomes: Iterable[LawOutcome]) -> dict[str, str | None]:
    return {law: f"Not tested: {untested}" if untested else complaint for law, complaint, untested in outcomes}


def figure(sweep: str | Path, results: str | Path | None = None) -> Figure:
    """Return the figure of a sweep file with a [plot] table, or of a ready-made sweep, drawn from the results so far.

    It is a `matplotlib` figure: `figure(...).axes` are its axes.

    Raises:
        SpecError: the file is not a sweep or has no [plot] table, or the package `dpbench_lab` is missing.
        DataMissing: no cell of the sweep has a result.
    """
    if not is_installed_package("dpbench_lab"):
        raise SpecError(
            "Expected the package dpbench_lab, which draws sweeps beside papers, but it is missing from this "
            "installation. Install dpbench-vision again."
        )
    from dpbench.analysis.figure import draw_figure
    from dpbench_lab.figures.collect import collect_sweep_figure

    return draw_figure(collect_sweep_figure(Path(sweep), None if results is None else Path(results), load()))


def _run_cells(definition: Mapping[str, Any], out: Path, device: str, plugins: Registry, keep_models: bool) -> Results:
    from dpbench.harness.session import open_session

    before = get_sweep_overview(definition, out, plugins, data=True)
    check_writable_folder(out)
    cells, session = before.grid.cells, open_session(device, plugins=plugins)
    done = {
        cell.digest
        for cell in before.cells("done")
        if len(cells) > 1 and not keep_models and _has_identifiable_components(cell, plugins)
    }
    filed: list[StoredResult] = []
    failed: dict[str, str] = {}
    models: dict[tuple[str, int], Model] = {}

    def keep_model(cell: Cell, prepared: PreparedRun, fitted: SeedFit) -> None:
        seed = fitted.result.seed
        try:
            models[prepared.spec.digest, seed] = Model.from_fit(prepared, fitted, plugins)
        except SpecError as error:  # costs no result
            failed[f"model of seed {seed} of {cell}"] = str(error)

    for cell in cells:
        try:
            result = before.folder.result(cell) if cell.digest in done else None
            if result is None:
                # What is interrupted goes on, unless a class of this session may have changed since.
                journal = (
                    RunJournalFolder(out) if _has_identifiable_components(cell, plugins) and not keep_models else None
                )
                result = session.run(
                    cell.spec, keep=partial(keep_model, cell) if keep_models else None, journal=journal
                )
                result.write(out)
                RunJournalFolder(out).delete(result.file_name)
            filed.append(StoredResult(out / result.file_name, result))
        except DpbenchError as error:
            if len(cells) == 1:
                raise
            failed[str(cell)] = str(error)
    if not filed:
        raise SpecError(f"All {len(cells)} runs failed. The first: {next(iter(failed.values()))}")
    return Results(tuple(filed), failed, models, plugins)


def _has_identifiable_components(cell: Cell, plugins: Registry) -> bool:
    """Return whether each component of a cell comes from a package, or is data that a digest identifies."""
    found = [plugins.find(component_kind_of_role(role), part.name) for role, part in cell.spec.roles.items()]
    return all(
        registration.distribution != UNPACKAGED[1] or issubclass(registration.cls, UserArrayDataset)
        for registration in found
    )


def _register_user_classes(plugins: Registry, parts: Mapping[str, Iterable[Any]]) -> Registry:
    """Return the registry extended by every class that the user passed."""
    for role, values in parts.items():
        kind = component_kind_of_role(role)
        for value in values:
            if not isinstance(value, str):
                cls = value if isinstance(value, type) else type(value)
                known = plugins.components[kind].get(getattr(cls, "name", ""))
                plugins = plugins if known and known.cls is cls else plugins.with_component(kind, cls)
    return plugins


def _make_spec_value(value: Any) -> Any:
    """Return a component as a spec states it: text unchanged, and an instance with the options that the user set."""
    if isinstance(value, str):
        return value
    if isinstance(value, type):
        return str(getattr(value, "name", value))
    whole = make_component_record(value)
    named = whole.options if whole.name == CONCAT else list_changed_fields(value)
    return {"name": whole.name, "options": {name: value for name, value in whole.options.items() if name in named}}


def _convert_to_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
