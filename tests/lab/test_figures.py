"""Ready-made sweeps, the figures that papers report, and the plot that shows both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from dpbench import registry
from dpbench.analysis.axis import make_x_axis
from dpbench.analysis.figure import draw_figure, write_figure
from dpbench.analysis.figure_data import FigureData, PublishedSeries
from dpbench.analysis.palette import LIGHT, PAPER
from dpbench.analysis.plots import Plot
from dpbench.errors import DataError, DataMissing, SpecError, UnknownName
from dpbench.records.packed import list_records
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import Registry
from dpbench.registry.components import resolve
from dpbench.sweep import ready_made_sweeps
from dpbench.sweep.grid import SweepGrid, read_grid
from dpbench_lab.figures import literature
from dpbench_lab.figures.collect import collect_sweep_figure
from dpbench_lab.reproduce.catalogue import read_studies
from dpbench_lab.reproduce.page import make_figure_from_results
from tests.helpers import readme
from tests.helpers.sessions import session
from tests.helpers.stated import with_interval

SWEEP = """
name = "tiny"
fixed = {dataset = "digits", seeds = 2}
grid = {epsilon = [0.1, inf]}
[[grids]]
learner = ["pillar"]
"learner.k" = [10, 40]
[[grids]]
learner = ["dp-sgd"]
[plot]
x = "learner.k"
lines = "epsilon"
scale = "log"
without = "all of them"
published = ["pillar-section-4-cifar10"]
"""
MEANS = {(0.1, 10): 0.61, (0.1, 40): 0.62, (0.1, None): 0.6, (math.inf, 10): 0.7, (math.inf, 40): 0.8}


@pytest.fixture(scope="module")
def plugins() -> Registry:
    return registry.load()


@pytest.fixture(scope="module")
def example(plugins: Registry) -> Result:
    return session(plugins).run(make_spec({"learner": "jl:k=5,steps=2", "seeds": 2}, "the test"))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(SWEEP)
    return file


def kept(grid: SweepGrid, example: Result, folder: Path, means: Mapping[Any, float]) -> None:
    """Write a result of these means for the cells that have one; its intervals reach a hundredth to both sides."""
    for cell in grid.cells:
        mean = means.get((cell.spec.epsilon, cell.values.get("learner.k")))
        if mean is not None:
            made = with_interval(example, mean, 0.01).model_copy(
                update={"spec": resolve(cell.spec, registry.load()).spec}
            )
            made.with_evidence_digest().write(folder)


@pytest.fixture
def collected(sweep: Path, example: Result, plugins: Registry, tmp_path: Path) -> FigureData:
    kept(read_grid(sweep, plugins), example, tmp_path / "results", MEANS)
    example.write(tmp_path / "results")  # a stranger's
    return collect_sweep_figure(sweep, tmp_path / "results", plugins)


def points(axes: Axes, label: str) -> dict[float, float]:
    """Return the points of the lines of a label, by their x."""
    lines = [line.get_xydata() for line in axes.get_lines() if line.get_label() == label]
    return {float(x): float(y) for line in lines for x, y in np.asarray(line)}


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ready_made_sweeps.list_sweep_names())
def test_a_ready_sweep_is_a_grid_and_a_plot_where_no_data_is(name: str, plugins: Registry, data_folder: Path) -> None:
    file = ready_made_sweeps.find_sweep_file(Path(name))
    grid = read_grid(file, plugins)
    assert grid.name == name
    assert grid.plot is not None
    assert len(literature.find_published_series(grid.plot, name)) == len(grid.plot.published)
    assert file.read_text().startswith("# ")


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", ready_made_sweeps.list_sweep_names())
def test_a_ready_sweep_on_cifar10_keeps_no_more_dimensions_than_there_are_public_images(
    name: str, plugins: Registry
) -> None:
    for cell in read_grid(ready_made_sweeps.find_sweep_file(Path(name)), plugins).cells:
        if cell.spec.dataset.name == "cifar10" and cell.spec.public_dataset is None:
            assert int(cell.spec.learner.options.get("k", 0)) <= round(cell.spec.public_fraction * 50_000)


def test_the_papers_figures_are_all_of_a_known_paper_at_known_keys_and_compared_somewhere() -> None:
    found = literature.read_literature()
    assert set(found.series) == {key for study in read_studies() for key in (*study.published, *study.other_features)}
    assert {series.paper for series in found.series.values()} == set(found.papers)
    axes = {axis for series in found.series.values() for point in series.points for axis in point.at}
    assert {axis.partition(".")[0] for axis in axes} <= set(Spec.model_fields)


def test_a_file_goes_before_a_ready_sweep_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = Path("pillar-figure-4")
    named.mkdir()
    assert ready_made_sweeps.find_sweep_file(named) == ready_made_sweeps.FOLDER / "pillar-figure-4.toml"
    named.rmdir()
    named.touch()
    assert ready_made_sweeps.find_sweep_file(named) == named
    with pytest.raises(UnknownName, match=r"Did you mean 'pillar-figure-5'\? Available: accuracy-against-epsilon, "):
        ready_made_sweeps.find_sweep_file(Path("pilar-figure-5"))


def test_the_committed_results_are_all_of_figure_4(plugins: Registry) -> None:
    if not any(Result.read(file).privacy.uses_current_mechanism for file in list_records(readme.FIGURE)):
        pytest.skip("the committed results are by the code before, whose defaults were others")
    found = collect_sweep_figure(Path("pillar-figure-4"), readme.FIGURE, plugins)
    assert (len(found.measured), found.missing, set(found.seeds)) == (27, 0, {3})
    (axes,) = draw_figure(found).axes
    assert points(axes, "published")[40] == 81.21


def test_a_figure_on_the_page_is_the_one_that_is_plotted_bound_and_formula_included(plugins: Registry) -> None:
    folder = readme.FIGURES / "theory-blocks"
    plotted = collect_sweep_figure(Path("theory-blocks"), folder, plugins)
    shown = make_figure_from_results("theory-blocks", [Result.read(file) for file in list_records(folder)])
    assert shown.fitted == plotted.fitted is not None
    assert (shown.measured, shown.bound) == (plotted.measured, plotted.bound)
    assert len(shown.measured) == 15


@pytest.mark.slow
def test_means_intervals_and_published_figures_stand_in_the_plot(collected: FigureData) -> None:
    assert collected.missing == 1
    (axes,) = draw_figure(collected).axes
    beyond = 40 * 4**0.15  # where cells without k stand
    assert points(axes, "0.1") == pytest.approx({10: 61, 40: 62, beyond: 60})
    assert points(axes, "∞") == pytest.approx({10: 70, 40: 80})
    assert points(axes, "published") == pytest.approx({40: 81.21, beyond: 76.9})
    bars = [bar for container in axes.collections for bar in container.get_paths()]
    assert [tuple(np.asarray(bar.vertices)[:, 1]) for bar in bars] == [
        pytest.approx((100 * mean - 1, 100 * mean + 1)) for mean in (0.61, 0.62, 0.6, 0.7, 0.8)
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "40", "all of\nthem"]
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "k (dimensions kept)")


def test_published_figures_are_hollow_and_have_the_colour_of_their_line(collected: FigureData) -> None:
    (axes,) = draw_figure(collected).axes
    (line,) = [line for line in axes.get_lines() if line.get_label() == "published"]
    assert (to_hex(line.get_color()).upper(), line.get_linestyle()) == (LIGHT[0].upper(), "--")
    assert line.get_markerfacecolor() == PAPER


def test_a_figure_at_the_best_x_is_a_line_across_and_one_that_says_more_than_a_triangle(collected: FigureData) -> None:
    at = {"epsilon": 0.1}
    told = [
        {"at": {**at, "learner.k": "best"}, "percent": 83},
        {"at": {**at, "learner.k": 10}, "percent": 55, "above": True},
    ]
    series = PublishedSeries.model_validate(
        {"paper": "A", "place": "section 1", "features": "B", "protocol": "C", "points": told}
    )
    assert series.label == "published: A, section 1 (B; ▲: more than; line: best k)"
    figure = draw_figure(FigureData(**{**vars(collected), "series": [series]}))
    (axes,) = figure.axes
    lines = [line for line in axes.get_lines() if line.get_label() == "published"]
    assert [(line.get_marker(), np.asarray(line.get_ydata()).tolist()) for line in lines] == [
        ("^", [55]),
        ("None", [83, 83]),
    ]


def test_a_panel_shows_its_own_cells_and_figures_and_says_where_there_are_none(
    example: Result, plugins: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "panels.toml"
    file.write_text(SWEEP.replace('lines = "epsilon"', 'panels = ["epsilon"]').replace("[0.1, inf]", "[0.1, inf, 3]"))
    kept(read_grid(file, plugins), example, tmp_path, MEANS)
    first, second, third = draw_figure(collect_sweep_figure(file, tmp_path, plugins)).axes
    assert [axes.get_title() for axes in (first, second, third)] == ["ε = 0.1", "ε = ∞", "ε = 3"]
    assert set(points(second, "measured").values()) == {70, 80}
    assert (points(first, "published")[40], points(second, "published")) == (81.21, {})
    assert [text.get_text() for text in third.texts] == ["no result yet"]


def test_the_same_results_give_the_same_bytes_and_an_svg_keeps_its_words(collected: FigureData, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.svg", "b.svg", "a.png")]
    for file in files:
        write_figure(collected, file)
    words = files[0].read_text()
    assert files[0].read_bytes() == files[1].read_bytes()
    for word in ("tiny (5 of 6 cells)", "ε = 0.1", "published: PILLAR, section 4.1", "mean of 2 seeds, 95% interval"):
        assert f">{word}</text>" in words
    assert len(files[2].read_bytes()) < 200_000


def test_without_any_result_the_command_is_named(sweep: Path, plugins: Registry, tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as refused:
        collect_sweep_figure(sweep, tmp_path / "none", plugins)
    assert str(refused.value) == (
        f"None of the 6 cells of tiny has a result in {tmp_path / 'none'}. "
        f"Run them first: dpbench sweep {sweep} --out {tmp_path / 'none'}"
    )


def test_a_result_without_the_metric_is_named(sweep: Path, example: Result, plugins: Registry, tmp_path: Path) -> None:
    sweep.write_text(SWEEP.replace('x = "learner.k"', 'x = "learner.k"\nmetric = "auroc"').replace("published", "#"))
    kept(read_grid(sweep, plugins), example, tmp_path, MEANS)
    with pytest.raises(DataError, match=r"Expected auroc in every result, got none in pillar-digits-eps0\.1-\w+\.json"):
        collect_sweep_figure(sweep, tmp_path, plugins)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[plot]", "[nothing]", "Unknown key 'nothing' of"),
        ('lines = "epsilon"', 'line = "epsilon"', "Unknown key 'line' of plot in"),
        ('x = "learner.k"', "", "Expected 'plot.x' in"),
        ('x = "learner.k"', 'x = "learner.kk"', "Unknown axis 'learner.kk' of [plot] of"),
        ('"log"', '"cubic"', "plot.scale='cubic' in"),
        ('scale = "log"', 'metric = "loss"', "plot.metric='loss' in"),
        ('scale = "log"', 'panels = ["epsilon"]', "Expected 'epsilon' in only one of x, lines and panels of [plot]"),
        ('without = "all of them"', "", "Expected 'without' in [plot] of"),
        ('lines = "epsilon"', "", "got two: epsilon=0.1, learner=pillar, learner.k=10, and epsilon=inf"),
        ("cifar10", "cifar11", "Unknown published series 'pillar-section-4-cifar11' of [plot] of"),
        ('scale = "log"', 'metric = "macro_f1"', "Expected metric = 'accuracy' with published series"),
    ],
)
def test_a_bad_plot_table_is_refused_by_name(
    sweep: Path, plugins: Registry, tmp_path: Path, old: str, new: str, said: str
) -> None:
    sweep.write_text(SWEEP.replace(old, new))
    with pytest.raises(SpecError) as refused:
        collect_sweep_figure(sweep, tmp_path, plugins)
    assert said in str(refused.value)


def test_a_scale_refuses_what_it_cannot_show_and_a_sweep_without_plot_is_refused(
    plugins: Registry, tmp_path: Path
) -> None:
    tables: dict[str, Any] = {"name": "tiny", "fixed": {"learner": "dp-sgd"}, "grid": {"public_fraction": [0, 0.1]}}
    with pytest.raises(SpecError, match="Expected public_fraction=0 > 0 in cell public_fraction=0"):
        read_grid({**tables, "plot": {"x": "public_fraction", "scale": "log"}}, plugins)
    file = tmp_path / "plain.toml"
    file.write_text(SWEEP.partition("[plot]")[0])
    with pytest.raises(SpecError, match=r"Expected a table \[plot\] in"):
        collect_sweep_figure(file, tmp_path, plugins)


def test_the_cells_do_not_depend_on_the_plot(sweep: Path, plugins: Registry) -> None:
    with_plot = read_grid(sweep, plugins)
    sweep.write_text(SWEEP.partition("[plot]")[0])
    assert read_grid(sweep, plugins).cells == with_plot.cells


def test_words_stand_to_the_right_of_numbers_and_what_has_no_x_last() -> None:
    linear = make_x_axis([None, 2.0, math.inf, 1.0], log=False)
    assert linear.coordinates == pytest.approx({1.0: 1, 2.0: 2, math.inf: 2.15, None: 2.3})
    assert linear.number_word_boundary == pytest.approx(2.075)
    log = make_x_axis([1.0, 100.0, None], log=True)
    assert (log.coordinates[None], log.number_word_boundary) == pytest.approx((100 * 100**0.15, 100 * 100**0.075))
    words = make_x_axis(["b", None, "a"], log=True)
    assert (words.coordinates, words.log, words.number_word_boundary) == ({"b": 0, "a": 1, None: 2}, False, None)


def test_tick_labels_that_would_touch_are_told() -> None:
    plot = Plot(x="learner.k")
    assert make_x_axis([100.0, 101.0, 200.0], log=False).has_touching_labels(plot, inches=3)
    assert not make_x_axis([100.0, 150.0, 200.0], log=False).has_touching_labels(plot, inches=3)


BOUND = """
name = "tiny"

[fixed]
dataset = "digits"
learner = "jl"

[grid]
epsilon = [0.1, 0.2]
"learner.k" = [10, 40]

[plot]
x = "learner.k * epsilon"
lines = "learner.k"
scale = "log"
metric = "error"
height = "log"
bound = "1 / (learner.k * epsilon)"
through = { epsilon = 0.1, "learner.k" = 10 }
rate = "a theorem"
"""


def _with_bound(plugins: Registry, example: Result, tmp_path: Path, text: str = BOUND) -> FigureData:
    file = tmp_path / "tiny.toml"
    file.write_text(text)
    means = {(0.1, 10): 0.8, (0.1, 40): 0.9, (0.2, 10): 0.85, (0.2, 40): 1.0}
    kept(read_grid(file, plugins), example, tmp_path / "results", means)
    return collect_sweep_figure(file, tmp_path / "results", plugins)


def test_a_bound_goes_through_the_point_that_is_named_times_one_constant(
    plugins: Registry, example: Result, tmp_path: Path
) -> None:
    found = _with_bound(plugins, example, tmp_path)
    assert {at.x: round(share, 9) for at, share in found.bound.items()} == {1.0: 0.2, 2.0: 0.1, 4.0: 0.05, 8.0: 0.025}
    assert found.fitted is not None
    assert found.measured[found.fitted].mean == pytest.approx(0.2)


def test_errors_are_drawn_on_a_logarithmic_scale_with_none_at_the_bottom(
    plugins: Registry, example: Result, tmp_path: Path
) -> None:
    figure = draw_figure(_with_bound(plugins, example, tmp_path))
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert points(axes, "10") == pytest.approx({1.0: 20, 2.0: 15})
    assert points(axes, "40") == pytest.approx({4.0: 10, 8.0: 5})  # half of the least error for none
    (legend,) = figure.legends
    assert any("a theorem, up to one constant" in text.get_text().replace("\n", " ") for text in legend.get_texts())


@pytest.mark.parametrize(
    ("line", "other", "said"),
    [
        ('"learner.k" = 10 }', '"learner.k" = 11 }', "to name one cell"),
        ('"1 / (learner.k', '"1 / (learner.m', "Unknown number 'learner.m'"),
        ('learner.k * epsilon"\nlines', 'learner.k * (epsilon"\nlines', "Expected a formula"),
    ],
)
def test_a_bound_that_has_no_value_or_no_point_is_refused(
    line: str, other: str, said: str, plugins: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(BOUND.replace(line, other))
    with pytest.raises(SpecError, match=said):
        read_grid(file, plugins)
