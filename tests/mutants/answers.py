"""Mutants of what answers a learner: curator, plan, rows, randomness and noise."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

CURATOR, PLAN, ROWS = (
    "privacy/test_curator.py::test_",
    "privacy/core/test_plan.py::test_",
    "privacy/test_curator.py::test_",
)
RANDOM, DISCRETE = "privacy/core/test_randomness.py::test_", "privacy/core/test_discrete.py::test_"

MUTANTS = (
    Mutant(
        "sigma halved", "noise for a budget four times smaller in sigma^2", "core/plan.py",
        edit("sigma * release.relative_noise for release", "sigma * release.relative_noise / 2 for release"),
        (CURATOR + "the_noise_of_an_answer_has_std_sigma_times_clip",),
    ),
    Mutant(
        "relative noise ignored", "a release planned with more noise gets the base noise", "core/plan.py",
        edit("{release.name: sigma * release.relative_noise for", "{release.name: sigma for"),
        ("privacy/test_binding.py::test_the_noise_is_that_of_the_plan_whatever_the_plan",),
    ),
    Mutant(
        "ledger not spent", "a release answers without end", "core/plan.py",
        edit("self._spent[name] += 1", "pass"),
        (PLAN + "spending_past_the_plan_is_refused_and_not_counted",),
    ),
    Mutant(
        "ledger one too many", "one answer more than was accounted", "core/plan.py",
        edit("self._spent[name] >= release.steps", "self._spent[name] > release.steps"),
        (PLAN + "spending_past_the_plan_is_refused_and_not_counted",),
    ),
    Mutant(
        "rate above one", "a batch size passes for a rate", "core/plan.py",
        edit("if not 0 < self.sample_rate <= 1:", "if not 0 < self.sample_rate:"),
        (PLAN + "a_malformed_release_is_refused_with_its_owner_named",),
    ),
    Mutant(
        "infinite relative noise", "an accountant is asked about noise that nobody adds", "core/plan.py",
        edit("0 < release.relative_noise < math.inf:", "0 < release.relative_noise:"),
        (PLAN + "a_malformed_release_is_refused_with_its_owner_named",),
    ),
    Mutant(
        "two releases of one name", "the ledger counts one of them, the accountant both or one", "core/plan.py",
        edit("if release.name in seen:", "if False:"),
        (PLAN + "two_releases_of_one_name_are_refused",),
    ),
    Mutant(
        "delta up to one", "publishing a random row has (0, 1/n)", "core/plan.py",
        edit("0 < budget.delta < 1 / task.size or", "0 < budget.delta < 1 or"),
        (PLAN + "a_delta_of_one_in_n_or_more_and_above_a_thousandth_is_refused",),
    ),
    Mutant(
        "sigma that is no number", "NaN > 0 is false: sums without noise for a run that states epsilon",
        "binding.py",
        edit("if not 0 <= sigma < math.inf:", "if sigma < 0 or sigma == math.inf:"),
        ("privacy/test_binding.py::test_a_sigma_that_is_none_is_refused",),
    ),
    Mutant(
        "spent after the rows are read", "a question that crashes half way is not counted", "core/ledger_curator.py",
        (
            ("spent = [self.ledger.spend(name, question.kind) for name in question.releases]",
             "spent = [self.ledger._plan[name] for name in question.releases]"),
            ("            return question.compute_answer(self, spent)",
             "            answer = question.compute_answer(self, spent)\n"
             "        for name in question.releases:\n            self.ledger.spend(name, question.kind)\n"
             "        return answer"),
            ("self.randomness.draws(release, self.ledger.spent[release])",
             "self.randomness.draws(release, self.ledger.spent[release] + 1)"),
        ),
        (CURATOR + "spending_comes_before_anything_is_read",),
    ),
    Mutant(
        "blocks without the root", "GEP's bug: b blocks have norm sqrt(b), not 1", "core/sum.py",
        edit("curator.sigma[self.release] * math.sqrt(len(clips)) * clip", "curator.sigma[self.release] * clip"),
        (CURATOR + "each_of_two_blocks_gets_noise_for_the_norm_of_both_together",),
    ),
    Mutant(
        "second block at the first clip", "a block with a smaller clip moves by more than its noise covers",
        "core/sum.py",
        edit("[block.integers(clip, shares) for block, clip in",
             "[block.integers(self.clips[0], shares) for block, clip in"),
        ("privacy/core/test_sums.py::test_one_example_moves_a_curators_sum_by_at_most_the_clips_in_any_chunks",),
    ),
    Mutant(
        "noise of the smallest clip", "blocks with a larger clip get too little", "core/sum.py",
        edit("zip(nothing, stds, strict=True)", "zip(nothing, [min(stds)] * len(stds), strict=True)"),
        (CURATOR + "each_of_two_blocks_gets_noise_for_the_norm_of_both_together",),
    ),
    Mutant(
        "all rows in every sample", "epsilon is stated for samples, without amplification it is far larger",
        "core/sum.py",
        edit("witness.members, step.sample_rate)", "witness.members, 1.0)"),
        ("privacy/test_binding.py::test_each_release_is_sampled_at_its_own_rate",),
    ),
    Mutant(
        "no noise for a small sigma", "large budgets are still budgets", "core/noise.py",
        edit("std.any() if isinstance(std, np.ndarray) else std", "np.any(np.asarray(std) > 0.1)"),
        (CURATOR + "any_sigma_above_zero_gives_noise",),
    ),
    Mutant(
        "a ledger for every map", "each map answers the whole plan once more", "core/map.py",
        (
            ("import dataclasses\n", "import copy\nimport dataclasses\n"),
            ("dataclasses.replace(curator, rows=made, task=task, mapped=True)",
             "dataclasses.replace(curator, rows=made, task=task, mapped=True, ledger=copy.deepcopy(curator.ledger), "
             "randomness=copy.deepcopy(curator.randomness))"),
        ),
        (CURATOR + "the_number_of_answers_is_the_number_of_ledger_entries",),
    ),
    Mutant(
        "shapes by private rows", "a class that one example has widens the answer: 73% against none", "core/sum.py",
        edit("sum_chunks(chunks, integers, nothing)", "sum_chunks(chunks, integers)"),
        ("privacy/core/test_sums.py::test_no_private_row_has_a_part_in_the_shape_or_the_scale_of_an_answer",),
    ),
    Mutant(
        "arithmetic of whoever asks", "under autocast sums are in bfloat16: one row moved one by 128 clips",
        "core/ledger_curator.py",
        edit("with own_arithmetic(), self.guard.remember_refusals():", "with self.guard.remember_refusals():"),
        ("privacy/core/test_sums.py::test_answers_do_not_depend_on_what_is_set_around_the_question",),
    ),
    Mutant(
        "questions of anybody", "a plugin's own question reads rows, and spends nothing", "core/ledger_curator.py",
        edit("if not is_closed(type(question)):", "if False:"),
        ("privacy/test_binding.py::test_a_question_or_a_plan_of_somebody_elses_is_refused",),
    ),
    Mutant(
        "row functions of anybody", "a plugin's own remembers, and is searched for no memory", "core/head.py",
        edit("isinstance(rows, OwnRowFunction) and is_closed(type(rows))", "isinstance(rows, OwnRowFunction)"),
        ("privacy/core/test_head.py::test_a_strangers_subclass_is_held_to_purity_as_strangers_are",),
    ),
    Mutant(
        "an exit is no failure", "a row function says a private value by how it ends, and the fit goes on",
        "purity/guard.py",
        edit("except BaseException as error:", "except Exception as error:"),
        ("privacy/purity/test_purity.py::TestFailures::test_what_ends_a_program_is_final_too_and_tells_nothing",),
    ),
    Mutant(
        "plans of anybody", "a plugin's own release says what it costs", "core/plan.py",
        edit("if not isinstance(release, Planned) or not is_closed(type(release)):",
             "if not isinstance(release, Planned):"),
        ("privacy/test_binding.py::test_a_question_or_a_plan_of_somebody_elses_is_refused",),
    ),
    Mutant(
        "closed by name alone", "a class of another's that calls itself one of dpbench's is believed", "core/closed.py",
        edit(" and getattr(module, cls.__name__, None) is cls", ""),
        ("privacy/test_binding.py::test_a_question_or_a_plan_of_somebody_elses_is_refused",),
    ),
    Mutant(
        "a clip that bounds nothing", "an infinite or missing clip passes", "core/sum.py",
        edit("if not (number and CLIPS[0] <= bound <= CLIPS[1]):", "if bound <= 0:"),
        (CURATOR + "a_clip_that_bounds_nothing_is_refused",),
    ),
    Mutant(
        "handle with a way in", "a bound method carries the curator, and with it all private rows", "curator.py",
        edit("return Curator(curator.task, curator.sigma, answer)",
             "return Curator(curator.task, curator.sigma, curator.answer)"),
        (CURATOR + "no_attribute_of_the_handle_leads_to_a_private_row",),
    ),
    Mutant(
        "chunk not wiped", "a chunk kept by a row function still holds private rows", "core/rows.py",
        edit("        finally:\n            wipe(*buffers)\n            self._lent = False",
             "        finally:\n            self._lent = False"),
        (ROWS + "a_chunk_kept_beyond_its_row_function_holds_no_private_row",),
    ),
    Mutant(
        "labels not wiped", "a chunk kept by a row function still holds private labels", "core/rows.py",
        edit("                finally:\n                    wipe(y, seeds)",
             "                finally:\n                    pass"),
        (ROWS + "a_chunk_kept_beyond_its_row_function_holds_no_private_row",),
    ),
    Mutant(
        "the end of a buffer not wiped", "the memory beside a short chunk holds rows of the chunk before",
        "core/rows.py",
        edit("wipe(*(buffer[len(rows) :] for buffer in buffers))", "pass"),
        (ROWS + "the_memory_around_a_chunk_holds_no_row_of_the_chunk_before",),
    ),
    Mutant(
        "questions inside questions", "a row function asks, and the rows it returns read other rows", "core/rows.py",
        edit("        if self._lent:", "        if False:"),
        ("privacy/test_curator.py::TestRefusals::test_asking_the_curator_inside_a_row_function",),
    ),
    Mutant(
        "one noise for all fits", "two learners' answers subtract to no noise", "core/randomness.py",
        edit('("fit", identity, str(seed))', '("fit", "", str(seed))'),
        (RANDOM + "no_noise_is_shared_by_two_questions",),
    ),
    Mutant(
        "one noise for all steps", "the difference of two answers has no noise", "core/randomness.py",
        edit("asked = (release, str(step))", 'asked = (release, "")'),
        (RANDOM + "no_noise_is_shared_by_two_questions",),
    ),
    Mutant(
        "one noise for all releases", "the difference of two answers has no noise", "core/randomness.py",
        edit("asked = (release, str(step))", 'asked = ("", str(step))'),
        (RANDOM + "no_noise_is_shared_by_two_questions",),
    ),
    Mutant(
        "one noise for all runs of a search", "runs of private selection subtract", "core/randomness.py",
        edit('("run", identity, str(seed), str(run))', '("run", identity, str(seed))'),
        (RANDOM + "no_noise_is_shared_by_two_questions",),
    ),
    Mutant(
        "settings of a fold share noise", "the differences of trials are exact", "core/randomness.py",
        edit("own = (*shared, str(setting))", "own = shared"),
        (RANDOM + "settings_of_a_fold_share_samples_and_start_and_not_noise",),
    ),
    Mutant(
        "sample and noise from one stream", "who was sampled tells the noise", "core/randomness.py",
        edit('_stream((*key, "noise"))', '_stream((*shared, "sample"))'),
        (RANDOM + "sample_and_noise_come_from_streams_of_their_own",),
    ),
    Mutant(
        "noise starts over in every block", "the difference of two blocks has no noise", "core/randomness.py",
        (
            ('self._shared, self._normals = shared, _stream((*key, "noise"))', "self._shared, self._key = shared, key"),
            ("noise = self._normals.standard_normal(tuple(shape))",
             'noise = _stream((*self._key, "noise")).standard_normal(tuple(shape))'),
        ),
        (RANDOM + "blocks_of_one_answer_have_noise_of_their_own",),
    ),
    Mutant(
        "draws given twice", "asking one step again repeats its noise", "core/randomness.py",
        edit("if step <= self._last.get(release, 0):", "if False:"),
        (RANDOM + "noise_that_was_given_out_is_not_given_again",),
    ),
    Mutant(
        "1 - q for q", "samples are larger than was accounted", "core/randomness.py",
        edit("generator.geometric(rate, count)", "generator.geometric(1 - rate, count)"),
        (RANDOM + "samples_have_the_stated_rate",),
    ),
    Mutant(
        "a sample of fixed size", "shuffled batches accounted as Poisson samples", "core/randomness.py",
        edit("    expected = size * rate\n",
             "    expected = size * rate\n    return np.sort(generator.permutation(size)[: round(expected)])\n"),
        (
            "privacy/core/test_mechanisms.py::test_batch_sizes_are_binomial",
            RANDOM + "a_sample_by_gaps_is_one_by_single_draws",
        ),
    ),
    Mutant(
        "secure sample one too many", "a rate above the stated one", "core/randomness.py",
        edit("np.uint64) < below)", "np.uint64) <= below)"),
        (RANDOM + "a_secure_samples_rate_is_exact",),
    ),
    Mutant(
        "secure rows with the same seeds", "augmentations repeat at every step, and can be learned",
        "core/randomness.py",
        edit("return secrets.randbits(63)", "return 4"),
        (RANDOM + "secure_draws_differ_each_time_and_leave_nothing_behind",),
    ),
    Mutant(
        "keys that run into each other", 'release "a", step 11 has the noise of release "a1", step 1',
        "core/randomness.py",
        edit("json.dumps(key).encode()", '"".join(key).encode()'),
        (RANDOM + "names_do_not_run_into_each_other",),
    ),
    Mutant(
        "half the noise in a sum", "what is drawn is not what is added", "core/noise.py",
        edit("torch.from_numpy(noise).to(", "torch.from_numpy(noise // 2).to("),
        ("privacy/core/test_mechanisms.py::test_noise_is_normal_with_the_stated_deviation",),
    ),
    Mutant(
        "one noise for all classes", "the bug of DP-FC: differences of classes have no noise", "core/noise.py",
        edit("draws.noise(summed.total.shape, steps.item() if steps.size == 1 else steps)",
             "draws.noise((1, *summed.total.shape[1:]), float(steps.max())).repeat(len(summed.total), 0)"),
        (CURATOR + "noise_is_independent_across_classes_steps_and_releases",),
    ),
    Mutant(
        "noise above 64 bits", "it wraps around, and is no noise", "core/noise.py",
        edit("if steps.size and not steps.max() <= MOST_STEPS:", "if False:"),
        ("privacy/core/test_mechanisms.py::test_noise_that_64_bits_cannot_hold_is_refused",),
    ),
    Mutant(
        "answers off the grid", "low bits of a float tell of the sum (Mironov 2012)", "core/noise.py",
        edit(".mul_(summed.grid).float()", ".mul_(summed.grid).mul_(1 + 1e-6).float()"),
        ("privacy/core/test_mechanisms.py::test_answers_are_multiples_of_the_sums_own_grid",),
    ),
    Mutant(
        "half the secure noise", "--secure-rng gives less than it states", "core/discrete.py",
        edit("math.ldexp(std, finer)", "math.ldexp(std, finer - 1)"),
        (DISCRETE + "answers_get_a_gaussian_rounded_to_the_grid",),
    ),
    Mutant(
        "secure noise of the first width", "coordinates of wider grids get too little", "core/discrete.py",
        edit("_rounded(int(here.sum()), float(value))", "_rounded(int(here.sum()), float(wanted.min()) or 1.0)"),
        (DISCRETE + "each_coordinate_may_have_its_own_width",),
    ),
)  # fmt: skip
