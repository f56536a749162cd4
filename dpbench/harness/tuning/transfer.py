"""Take settings from an earlier tuning or result, on the same dataset or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpbench.api import Learner
from dpbench.data.duplicates import ImageHashes
from dpbench.errors import DataError, MalformedFile, SpecError
from dpbench.harness.split_images import SplitName
from dpbench.records.overlap import MAX_COPIES, MAX_LOOKALIKES
from dpbench.records.result import Result
from dpbench.records.search import Selection, SelectionRule, SettingsSource, choose_least_clean_rule
from dpbench.records.spec import Spec
from dpbench.records.tuning import Tuning
from dpbench.registry import convert_fields
from dpbench.registry.components import ResolvedSpec
from dpbench.support.plugin_calls import call_plugin

SettingsRecord = Result | Tuning
HashLookup = Callable[[SplitName], ImageHashes]
_SPLIT_FIELDS = {"dataset", "public_dataset", "public_fraction", "imbalance", "split_seed"}
_IRRELEVANT_FIELDS = {
    "search",
    "seeds",
    "learner",
    "secure_rng",
    "allow_overlap",
}  # a setting is carried across as if it were chosen here


def read_settings(file: Path, learner: Learner) -> tuple[Learner, SettingsRecord]:
    """Return the learner with the settings from `file`, which is a tuning or a result, and the record in the file.

    Raises:
        DataError: the file is neither a result nor a tuning.
        SpecError: the file is for another learner, or of a private search, which chooses a setting for each seed.
        ComponentFailed: the learner raises when it checks its own settings.
    """
    earlier = _read_record(file)
    if earlier.spec.learner.name != learner.name:
        raise SpecError(
            f"Expected settings of learner {learner.name!r} in {file}, got those of {earlier.spec.learner.name!r}."
        )
    options = convert_fields(type(learner), _merge_learner_options(earlier), f"learner {learner.name!r} in {file}")
    who = f"Building learner {learner.name!r} from {file}"
    return call_plugin(who, lambda: dataclasses.replace(learner, **options)), earlier  # type: ignore[type-var]


def apply_settings(settings: Path, resolved: ResolvedSpec) -> tuple[ResolvedSpec, SettingsRecord]:
    """Return the spec with the learner's settings from a file, and the record in the file.

    Raises:
        SpecError: the spec asks for a search as well, or gives a setting another value than the file does.
        DpbenchError: as for `read_settings`.
    """
    if resolved.search is not None:
        raise SpecError("Settings can come from a file or from a search, but not both. Drop --settings or --selection.")
    asked = resolved.parts.learner
    learner, earlier = read_settings(settings, asked)
    for name in resolved.named.keys() - {""}:
        here, there = getattr(asked, name), getattr(learner, name)
        if here != there:
            raise SpecError(f"Expected {name}={there}, as in {settings}, or no {name} at all, got {name}={here}.")
    return resolved.with_learner(learner), earlier


def make_transfer_record(
    earlier: SettingsRecord, here: SelectionRule, spec: Spec, digests: Mapping[str, str], images: HashLookup
) -> Selection:
    """Return the selection record of settings from a file; its rule is never cleaner than the rule in the file.

    ============================================ ================================= ============================
    data of the file                             cleanest possible rule            private records touched
    ============================================ ================================= ============================
    other data                                   `transfer`                        as in the file
    same protocol, any seeds                     the rule in the file              as in the file
    same split, another budget or extractor      `by-hand`                         as in the file
    same data, split differently, or as public   `private-unaccounted`             yes: labels public there
                                                                                   are private here
    public images that are test images here      `oracle`                          as in the file
    ============================================ ================================= ============================

    If the file, or a file that its settings came from, records a less clean rule, that rule applies: settings found by
    a search on private data are never ranked, however often they are passed on. Data count as the same if their files
    have the same digest, or if more than `MAX_COPIES` of the public images in the file's sketch are found here. Private
    images have no sketch, because a sketch would reveal them. They need no sketch, because the rule of a search
    that used them stays with the settings.

    A learner's defaults, which nobody chose, stay `default` while they are its defaults. Defaults of an earlier version
    were found by somebody, on unknown data, and count as `transfer`.

    Args:
        earlier: the record in the file, as `read_settings` returns it.
        here: the rule of the settings regardless of the file: `default` if they are the learner's defaults.
        spec: the spec of the new run.
        digests: the digests of the new run's data.
        images: returns the hashes of a split of the new run by its name; called only if they are needed.
    """
    options, there = _merge_learner_options(earlier), find_least_clean_rule(earlier)
    if there != "default":
        rule = choose_least_clean_rule(there, _find_transfer_rule(earlier, spec, digests, images))
    else:
        rule = "default" if here == "default" else "transfer"
    source = SettingsSource(
        digest=earlier.digest, dataset=earlier.spec.dataset.name, extractor=earlier.spec.extractor.names,
        epsilon="Infinity" if earlier.spec.epsilon == float("inf") else earlier.spec.epsilon, selection=there,
    )  # fmt: skip
    kept = _get_search_record(earlier) or Selection(
        rule=rule, space={}, possible=1, tried=1, draw="none", seed=0, private_touched=False, public_labels=0, chosen={}
    )
    touched = kept.private_touched or rule == "private-unaccounted"
    changed = {"rule": rule, "source": source, "chosen": options, "trials": (), "private_touched": touched}
    return kept.model_copy(update=changed)


def find_least_clean_rule(earlier: SettingsRecord) -> SelectionRule:
    """Return the least clean rule by which a file's settings, or those that they were taken from, were chosen."""
    search = _get_search_record(earlier)
    stated = earlier.selection.rule if isinstance(earlier, Tuning) else earlier.selection
    return choose_least_clean_rule(stated, search.source.selection) if search and search.source else stated


def _find_transfer_rule(
    earlier: SettingsRecord, spec: Spec, digests: Mapping[str, str], images: HashLookup
) -> SelectionRule:
    """Return the cleanest rule that a file's settings can have on this data, however they were chosen."""
    public, there = (earlier, earlier.digests) if isinstance(earlier, Tuning) else (earlier.task, earlier.task.digests)
    if digests["private"] in there.values():
        if _have_equal_fields(earlier.spec, spec, set(Spec.model_fields) - _IRRELEVANT_FIELDS):
            return "default"
        return "by-hand" if _have_equal_fields(earlier.spec, spec, _SPLIT_FIELDS) else "private-unaccounted"
    if _share_images(images("test"), public.sketch, public.looks, earlier):
        return "oracle"
    private = _share_images(images("private"), public.sketch, public.looks, earlier)
    return "private-unaccounted" if private else "transfer"


def _share_images(hashes: ImageHashes, sketch: str, looks: str | None, earlier: SettingsRecord) -> bool:
    try:
        return (
            hashes.compute_sketch_share(sketch) > MAX_COPIES
            or hashes.compute_lookalike_share(looks or "") > MAX_LOOKALIKES
        )
    except ValueError as error:
        raise DataError(f"Expected a sketch of images in the file of digest {earlier.digest}: {error}.") from error


def _have_equal_fields(spec: Spec, other: Spec, fields: set[str]) -> bool:
    return spec.model_dump(include=fields) == other.model_dump(include=fields)


def _read_record(file: Path) -> SettingsRecord:
    try:
        return Tuning.read(file)
    except DataError as first:
        try:
            return Result.read(file)
        except DataError as second:
            changed = isinstance(second.__cause__, MalformedFile)  # a result, but not as it was written
            said = second if changed else first
            raise DataError(f"Expected a tuning or a result of dpbench in {file}: {said}") from second


def _get_search_record(earlier: SettingsRecord) -> Selection | None:
    return earlier.selection if isinstance(earlier, Tuning) else earlier.search


def _merge_learner_options(earlier: SettingsRecord) -> dict[str, Any]:
    search = _get_search_record(earlier)
    if search is not None and search.chosen is None:
        raise SpecError("A private search chooses a setting for each seed; there is no one setting to take from it.")
    return {**earlier.spec.learner.options, **(search.chosen or {} if search else {})}
