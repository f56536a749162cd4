"""Mutants of choices and votes, and of what they cost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

CHOICE, VOTES = "privacy/mechanisms/test_choice.py::test_", "privacy/mechanisms/test_votes.py::test_"
PARTS = "privacy/mechanisms/test_part_losses.py::test_"
LAW = CHOICE + "three_candidates_are_chosen_with_the_chances_of_the_law"
PLANS = CHOICE + "epsilon_of_three_mixed_plans_is_that_by_hand_and_of_two_accountants"

MUTANTS = (
    Mutant(
        "losses not clamped", "one row decides a choice", "mechanisms/choice/steps.py",
        edit(".nan_to_num(0.0).clamp_(0, 1).mul_(", ".nan_to_num(0.0).mul_("),
        (CHOICE + "a_row_moves_every_total_by_0_to_1_whatever_it_says",),
    ),
    Mutant(
        "losses from -1 to 1", "totals move both ways, which takes twice the noise", "mechanisms/choice/steps.py",
        edit(".clamp_(0, 1).mul_(", ".clamp_(-1, 1).mul_("),
        (CHOICE + "a_row_moves_every_total_by_0_to_1_whatever_it_says",),
    ),
    Mutant(
        "a matrix of any losses", "a cell loses more than 1", "mechanisms/choice/question.py",
        edit("if not (low >= 0 and high <= 1):", "if False:"),
        (CHOICE + "what_is_no_loss_is_refused_in_one_sentence",),
    ),
    Mutant(
        "twice eps0", "exp(eps0 L) where exp(eps0 L / 2) is accounted for", "mechanisms/choice/question.py",
        edit("sigma / 2 / grid", "sigma / 4 / grid"), (LAW,),
    ),
    Mutant(
        "half the Gumbel noise", "the law is that of twice eps0", "mechanisms/choice/question.py",
        edit("stream.gumbel(size=totals.shape) -", "stream.gumbel(size=totals.shape) / 2 -"), (LAW,),
    ),
    Mutant(
        "one Gumbel number for all", "the least is chosen, always", "mechanisms/choice/question.py",
        edit("stream.gumbel(size=totals.shape) -", "stream.gumbel(size=(len(totals), 1)) -"), (LAW,),
    ),
    Mutant(
        "secure choices of half the noise", "the law is that of twice eps0", "mechanisms/choice/question.py",
        edit("scale=scale, negate=True", "scale=scale / 2, negate=True"), (LAW,),
    ),
    Mutant(
        "a choice that is not spent", "it is asked without end", "mechanisms/choice/question.py",
        (
            ('The one that pays."""\n        return (self.release,)', 'The one that pays."""\n        return ()'),
            ("choice: Choice = spent[0]\n        if choice.parts",
             "choice: Any = curator.ledger.find_release(self.release)\n        if choice.parts"),
        ),
        (CHOICE + "a_choice_finds_what_loses_least_and_spends_its_step",),
    ),
    Mutant(
        "sums answer for choices", "a sum is answered from a budget of another kind", "core/plan.py",
        edit("        if not isinstance(release, kind):", "        if False:"),
        (CHOICE + "a_choice_is_asked_as_one_and_a_release_of_sums_as_one",),
    ),
    Mutant(
        "half of eps0 accounted", "the seed's factor 2, forgotten on one side", "mechanisms/choice/choice_plan.py",
        edit("return 2 / sigma", "return 1 / sigma"), (PLANS,),
    ),
    Mutant(
        "several choices pure", "as one choice, whose eps0 is the whole epsilon", "mechanisms/choice/choice_plan.py",
        edit("return PureChoice(self) if self.steps == 1 else None",
             "return PureChoice(self)"), (CHOICE + "several_choices_compose_below_the_sum_of_theirs",),
    ),
    Mutant(
        "a quarter of the zCDP", "a range of eps0 has eps0^2 / 8", "mechanisms/choice/choice_plan.py",
        edit("dp.ZCDpEvent(eps0_of(noise) ** 2 / 8)", "dp.ZCDpEvent(eps0_of(noise) ** 2 / 32)"),
        (CHOICE + "renyi_charges_a_choice_as_the_gaussian_release_of_its_noise",),
    ),
    Mutant(
        "a pair that does not dominate", "the law of some choice is told apart better",
        "mechanisms/choice/choice_plan.py",
        edit("np.expm1((inside - eps0) / 2) ** 2", "np.expm1((inside - eps0) / 2) ** 4"),
        (CHOICE + "the_dominating_pair_dominates_every_choice",),
    ),
    Mutant(
        "steps of choices do not compose", "T choices cost as one", "mechanisms/choice/choice_plan.py",
        edit("loss_distribution(eps0_of(noise), interval).self_compose(self.steps)",
             "loss_distribution(eps0_of(noise), interval)"),
        (CHOICE + "steps_of_a_choice_cost_what_as_many_choices_do",),
    ),
    Mutant(
        "a search leaves choices out", "the best of many runs is charged for sums alone",
        "mechanisms/choice/choice_plan.py",
        edit("self.steps * eps0_of(noise) ** 2 / 8 * np.array(orders)", "0.0 * np.array(orders)"),
        (CHOICE + "a_private_search_charges_for_choices",),
    ),
    Mutant(
        "Opacus leaves choices out", "its accountant knows Gaussians alone", "core/accounting/accountant.py",
        edit("if others := {type(release).__name__ for release in plan if not release.gaussian}:",
             "if others := set[str]():"),
        (CHOICE + "opacus_does_not_compose_choices",),
    ),
    Mutant(
        "losses in every part", "a row moves all parts, at the price of one", "mechanisms/choice/parts.py",
        edit("        total.index_add_(0, self.part[inside], steps[inside])", "        total += steps[inside].sum(0)"),
        (PARTS + "a_row_moves_its_own_part_by_0_to_1_whatever_it_says",),
    ),
    Mutant(
        "a unit counts in each part", "of a unit in several classes each counts it whole",
        "mechanisms/choice/parts.py",
        edit("loss_steps(self.rows.rows, shares)", "loss_steps(self.rows.rows)"),
        (PARTS + "a_unit_in_several_parts_moves_every_combination_by_at_most_1",),
    ),
    Mutant(
        "losses rounded to the nearest", "those of a unit add up to more than 1", "mechanisms/choice/steps.py",
        edit("shares.unsqueeze(1)).floor_()", "shares.unsqueeze(1)).round_()"),
        (PARTS + "a_unit_in_several_parts_moves_every_combination_by_at_most_1",),
    ),
    Mutant(
        "rows in no part count in one", "a row that says nothing loses in the first part", "mechanisms/choice/parts.py",
        edit("        return (self.part >= 0) & (self.part < self.parts)\n",
             "        self.part.clamp_(0, self.parts - 1)\n        return self.part >= 0\n"),
        (PARTS + "a_row_moves_its_own_part_by_0_to_1_whatever_it_says",),
    ),
    Mutant(
        "shards by position", "taking an example away moves all after it to other teachers", "mechanisms/votes.py",
        edit("whole[:, 0] % np.uint64(shards)", "np.arange(len(words), dtype=np.uint64) % np.uint64(shards)"),
        (VOTES + "an_example_stays_in_its_shard_whoever_else_is_there",),
    ),
    Mutant(
        "units torn apart by shards", "a patient's images teach several teachers, and move several votes",
        "mechanisms/votes.py",
        edit("[units.of]", "[np.arange(len(units.of)) % units.count]"),
        ("privacy/test_units.py::test_votes_deal_a_units_rows_to_one_shard_whatever_the_others_are",),
    ),
    Mutant(
        "seeds by position", "taking an example away gives other teachers other seeds", "mechanisms/votes.py",
        edit("yield Chunk(chunk.rows, chunk.y, seeds)", "yield Chunk(chunk.rows, chunk.y, chunk.seeds)"),
        (VOTES + "taking_an_example_away_moves_one_vote_a_query",),
    ),
    Mutant(
        "labels left out of the hash", "an example's label does not count as its content", "mechanisms/votes.py",
        edit("for part in (*held, chunk.y)]", "for part in held]"),
        (VOTES + "equal_examples_share_a_shard_and_other_labels_do_not_count_as_equal",),
    ),
    Mutant(
        "votes without the root of two", "a vote that moves changes two counts", "mechanisms/votes.py",
        edit("return math.sqrt(2 * queries)", "return math.sqrt(queries)"),
        (VOTES + "noise_has_the_spread_that_is_stated",),
    ),
    Mutant(
        "noise for one query", "an example moves a vote of each query", "mechanisms/votes.py",
        edit("return math.sqrt(queries)\n", "return 1.0\n"), (VOTES + "noise_has_the_spread_that_is_stated",),
    ),
    Mutant(
        "teachers need not repeat", "what a teacher keeps elsewhere moves the votes of others", "purity/guard.py",
        edit("        if not same:\n", "        if False:\n"),
        (VOTES + "a_teacher_that_remembers_where_nobody_looks_is_refused",),
    ),
    Mutant(
        "sampled votes", "epsilon is stated for a sample, and teachers see everybody", "mechanisms/votes.py",
        edit("if planned.sample_rate < 1:", "if planned.sample_rate < 0:"),
        (VOTES + "what_cannot_be_asked_is_refused_in_one_sentence",),
    ),
)  # fmt: skip
