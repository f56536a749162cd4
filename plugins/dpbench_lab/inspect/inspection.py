"""Run an inspection: load the data, then measure spectrum, separability and margins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from dpbench.errors import SpecError
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.roles import ExamplesByRole
from dpbench.harness.session import Session
from dpbench.harness.source import DataSource
from dpbench.records import provenance
from dpbench.records.result import ComponentOrigin
from dpbench.registry.components import BuiltComponents
from dpbench.support import progress
from dpbench.support.phases import PhaseProfiler
from dpbench_lab.inspect import report
from dpbench_lab.inspect.margins import group_margins_by_class, measure_margins
from dpbench_lab.inspect.prediction import predict_gains
from dpbench_lab.inspect.report import Guarantee, Inspection, InspectionRequest
from dpbench_lab.inspect.separability import measure_separability
from dpbench_lab.inspect.spectrum import compute_eigen_decomposition, scale_rows_to_unit_length, summarise_spectrum


def run_inspection(request: InspectionRequest, session: Session) -> Inspection:
    """Analyse the public split, or the private one on request; all rows are scaled to length 1.

    Covered: with `rows="public"` no number depends on a private row, so the inspection costs no privacy. Not covered:
    with `rows="private"` there is no guarantee, and the inspection says so. Test rows are never read.

    Raises:
        DpbenchError: a name, an option or the data is invalid.
    """
    phases, resolved = PhaseProfiler(), session.resolve(request.spec)
    parts = resolved.parts
    with phases("load"):
        rule = dataclasses.replace(request.spec.split_rule, keep_copies=True)  # no private image is opened for it
        roles, images = session.memo.examples(DataSource(parts, rule, session.device), request.spec.budget)
        x, y, note = _read_inspected_rows(roles, parts, request)
    with phases("spectrum"), progress.show_status("Decomposing the covariance"):
        request = report.complete_request(request, resolved.spec, min(x.shape))
        pca = compute_eigen_decomposition(x, centre=True)
        spectrum = summarise_spectrum(pca.values, request.k)
    separated = found = predicted = None
    if y is not None:
        with phases("separability"):
            separated = measure_separability(x, y, parts.dataset.classes, request)
            predicted = predict_gains(request.k, x.shape[1], spectrum, separated)
        with phases("margins"):
            names = [parts.dataset.classes[label] for label in np.unique(y)]
            found = group_margins_by_class(measure_margins(x, y, pca, request.k, request.svm_c), names)
    return Inspection(
        digest=report.digest_request(request), asked=request, mark=report.MARK if request.rows == "private" else "",
        guarantee=_describe_guarantee(request), examples=len(x), features=x.shape[1], labels_read=y is not None,
        digests=images.digests, licence=parts.dataset.licence, spectrum=spectrum, separability=separated, margins=found,
        prediction=predicted, note=note, seconds=phases.seconds, components=_list_origins(parts),
        provenance=provenance.collect_provenance(str(session.device)),
    )  # fmt: skip


def _read_inspected_rows(
    roles: ExamplesByRole, components: BuiltComponents, request: InspectionRequest
) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return unit rows (n, d) float64; labels (n,), or None if their classes differ from the dataset's; and a note."""
    dataset, other = components.dataset, components.public_dataset
    features, labels, note = roles.public.x, roles.public.y, ""
    if request.rows == "private":
        features, labels = roles.private.x[roles.private.index], roles.private.y
    elif other and other.classes != dataset.classes:
        note = f"The classes of public dataset {other.name!r} are not those of {dataset.name!r}"
        labels, note = None, f"{note}: only the spectrum."
    if not len(features):
        raise SpecError("Expected public data to inspect, got none. Add --public-fraction or --public-dataset.")
    x = scale_rows_to_unit_length(features.flatten(1).double().cpu().numpy())
    if labels is None:
        return x, None, note
    y = labels.cpu().numpy()
    return x, y, _describe_missing_classes(y, dataset.classes, request)


def _describe_missing_classes(y: np.ndarray, classes: Sequence[str], request: InspectionRequest) -> str:
    """Return a note on classes without examples; raise `SpecError` if all labels are of one class."""
    seen = np.unique(y)
    if len(seen) < 2:
        raise SpecError(
            f"Expected {request.rows} examples of at least two classes, got {len(y)} of {classes[seen[0]]!r} only: "
            "there is nothing to separate. Raise --public-fraction, or choose another --split-seed."
        )
    missing = len(classes) - len(seen)
    return f"{missing} of {len(classes)} classes have no {request.rows} example." if missing else ""


def _describe_guarantee(request: InspectionRequest) -> Guarantee:
    return "none: reads private data" if request.rows == "private" else "epsilon 0: reads public data alone"


def _list_origins(parts: BuiltComponents) -> dict[str, ComponentOrigin]:
    return {role: value for role, value in get_component_origins(parts).items() if role != "learner"}
