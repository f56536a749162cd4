"""Mutants of what the harness does around the core: fits, searches, identities and journals."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

GLUE = "harness/test_around_the_core.py::test_"

MUTANTS = (
    Mutant(
        "a fit that is not concluded", "a learner swallows a refusal, and its fit ends well", "fitting.py",
        edit("    for guard in guards:\n        guard.conclude()\n", ""),
        (GLUE + "a_fit_that_swallows_a_refusal_is_refused",), "harness",
    ),
    Mutant(
        "a learner that reads the data itself", "what it reads has no noise", "fit.py",
        edit(", prepared.images.files.refused():", ":"),
        ("harness/test_private_files.py::test_what_a_dataset_reads_as_it_loads_no_fit_may_read",), "harness",
    ),
    Mutant(
        "identity without the data", "runs on two datasets share noise, and subtract", "identity.py",
        edit("releases, dict(digests), versions", "releases, versions"),
        (GLUE + "whatever_changes_a_sum_or_its_noise_changes_the_identity",), "records",
    ),
    Mutant(
        "identity without the plan", "two plans share noise: their difference is exact", "identity.py",
        edit("[MECHANISM, asked, releases, dict(digests)", "[MECHANISM, asked, dict(digests)"),
        (GLUE + "whatever_changes_a_sum_or_its_noise_changes_the_identity",), "records",
    ),
    Mutant(
        "candidates as many as rows say", "the number of candidates tells of a row", "mechanisms/choice/question.py",
        edit(" or count_candidates(block, count) != count:", ":"),
        (GLUE + "candidates_are_as_many_as_no_rows_say",),
    ),
    Mutant(
        "a row may change by 10%", "a row holds a tenth of its neighbours", "purity/spotchecks.py",
        edit("ONE_ROW, MOST_ROWS = 1e-3, 1e-5", "ONE_ROW, MOST_ROWS = 1e-1, 1e-5"),
        (GLUE + "a_hundredth_of_a_few_rows_is_no_rounding",),
    ),
    Mutant(
        "small arrays between drawn chunks", "a counter is written to behind its back, and written back",
        "purity/kinds.py",
        edit("small = found.nbytes <= SMALL and not found.dtype.hasobject", "small = False"),
        (GLUE + "small_arrays_are_compared_around_every_chunk",),
    ),
    Mutant(
        "unfinished seeds of a private search", "when a seed ended tells how many runs it had", "run.py",
        edit("        journal = None\n", "        pass\n"),
        (GLUE + "nothing_is_kept_of_a_private_search_under_way",), "harness",
    ),
    Mutant(
        "drawn data of another size", "sigma and epsilon are those of other data", "prepare.py",
        edit("if (loaded.roles.task, loaded.images.left_out) !=", "if False and () =="),
        (GLUE + "data_drawn_for_another_seed_have_the_size_that_sigma_is_of",), "harness",
    ),
    Mutant(
        "a search that goes on", "a run of a search is refused, and another one uses what it learned",
        "tuning/private.py",
        edit("            if error.final:", "            if False:"),
        (GLUE + "a_private_search_ends_at_a_refusal",), "harness",
    ),
)  # fmt: skip
