"""Edits of the harness around the core: fits, searches, identities and journals."""

from __future__ import annotations

from dpbench_lab.museum.cores.broken_core import edit

IDENTITY = "records/identity.py"
IN_AROUND_THE_CORE = "harness/test_around_the_core.py::"

EDITS = (
    edit("harness/fitting.py", "a fit that is not concluded", "a learner swallows a refusal, and its fit ends well",
         "[-    for guard in guards:\n        guard.raise_earlier_refusal()\n-]",
         tests=IN_AROUND_THE_CORE + "test_a_fit_that_swallows_a_refusal_is_refused"),
    edit("harness/fitting.py", "a learner that reads the data itself", "what it reads has no noise",
         "with [-first.files.refuse_access(), -]refuse",
         tests="harness/test_private_files.py::test_what_a_dataset_reads_as_it_loads_no_fit_may_read"),
    edit("harness/fitting.py", "a predictor that reads the labels itself", "what it scores is what it read",
         "with [-fitted.files.refuse_access(IN_A_PREDICTION), -]refuse",
         tests="harness/test_private_files.py::test_no_predictor_reads_the_labels_from_the_datasets_files"),
    edit("harness/prepare.py", "a training set in a global", "a learner fits what its module holds, without noise",
         "        [-refuse_held_copies(resolved.parts.learner, roles.private, loaded.images)-]{+pass+}\n",
         tests="harness/test_held_copies.py::test_a_learner_that_names_a_global_copy_is_refused"),
    edit("harness/mirrored.py", "private images among the mirrored ones", "a tail is trained on them without noise",
         "own = images.[-public-]{+private+}.tolist()",
         tests="harness/test_mirrored.py::test_each_public_image_comes_with_its_own_mirror_image"),
    edit(IDENTITY, "identity without the data", "runs on two datasets share noise, and subtract",
         "releases, [-dict(digests), -]versions",
         tests=IN_AROUND_THE_CORE + "test_whatever_changes_a_sum_or_its_noise_changes_the_identity"),
    edit(IDENTITY, "identity without the plan", "two plans share noise: their difference is exact",
         "[MECHANISM, asked, [-releases, -]dict(digests)",
         tests=IN_AROUND_THE_CORE + "test_whatever_changes_a_sum_or_its_noise_changes_the_identity"),
    edit("harness/run.py", "unfinished seeds of a private search", "when a seed ended tells how many runs it had",
         "        [-journal = None-]{+pass+}\n",
         tests=IN_AROUND_THE_CORE + "test_nothing_is_kept_of_a_private_search_under_way"),
    edit("harness/prepare.py", "drawn data of another size", "sigma and epsilon are those of other data",
         "if [-(loaded.roles.task, loaded.images.left_out) !-]{+False and () =+}=",
         tests=IN_AROUND_THE_CORE + "test_data_drawn_for_another_seed_have_the_size_that_sigma_is_of"),
    edit("harness/tuning/private.py", "a search that goes on",
         "a run of a search is refused, and another one uses what it learned",
         "            if [-error.final-]{+False+}:",
         tests=IN_AROUND_THE_CORE + "test_a_private_search_ends_at_a_refusal"),
)  # fmt: skip
