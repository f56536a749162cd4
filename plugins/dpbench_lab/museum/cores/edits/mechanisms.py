"""Edits of choices and votes, and of their cost."""

from __future__ import annotations

from dpbench_lab.museum.cores.broken_core import edit

STEPS = "privacy/mechanisms/choice/steps.py"
QUESTION = "privacy/mechanisms/choice/question.py"
CHOICE_PLAN = "privacy/mechanisms/choice/choice_plan.py"
BOUNDED_RANGE = "privacy/mechanisms/choice/bounded_range.py"
PARTS = "privacy/mechanisms/choice/parts.py"
VOTES = "privacy/mechanisms/votes.py"
IN_UNITS = "privacy/test_units.py::"
IN_PART_LOSSES = "privacy/mechanisms/test_part_losses.py::"
IN_CHOICE = "privacy/mechanisms/test_choice.py::"
IN_VOTES = "privacy/mechanisms/test_votes.py::"

EDITS = (
    edit(STEPS, "losses of a unit added and not averaged", "thirty images lose thirty times as much",
         "if [-shares is not None-]{+False+}:  # down",
         tests=IN_UNITS + "test_a_unit_loses_at_most_one_by_each_candidate_and_gains_nothing"),
    edit(STEPS, "losses rounded to the nearest", "those of a unit add up to more than 1",
         "shares.unsqueeze(1)).[-floor_-]{+round_+}()",
         tests=IN_PART_LOSSES + "test_a_unit_in_several_parts_moves_every_combination_by_at_most_1"),
    edit(QUESTION, "a matrix of any losses", "a cell loses more than 1",
         "if [-not (low >= 0 and high <= 1)-]{+False+}:",
         tests=IN_CHOICE + "test_what_is_no_loss_is_refused_in_one_sentence"),
    edit(QUESTION, "half the Gumbel noise", "the law is that of twice eps0",
         "stream.gumbel(size=totals.shape) {+/ 2 +}-",
         tests=IN_CHOICE + "test_three_candidates_are_chosen_with_the_chances_of_the_law"),
    edit(QUESTION, "one Gumbel number for all", "the least is chosen, always",
         "stream.gumbel(size=[-totals.shape-]{+(len(totals), 1)+}) -",
         tests=IN_CHOICE + "test_three_candidates_are_chosen_with_the_chances_of_the_law"),
    edit(QUESTION, "secure choices of half the noise", "the law is that of twice eps0",
         "scale=scale{+ / 2+}, negate=True",
         tests=IN_CHOICE + "test_three_candidates_are_chosen_with_the_chances_of_the_law"),
    edit(QUESTION, "a choice that is not spent", "it is asked without end",
         'The release that pays for the choice."""\n        return ([-self.release,-])',
         "choice: [-Choice = spent[0]-]{+Any = curator.ledger.find_release(self.release)+}\n        if choice.parts",
         tests=IN_CHOICE + "test_a_choice_finds_what_loses_least_and_spends_its_step"),
    edit(QUESTION, "candidates as many as rows say", "the number of candidates tells of a row",
         "if [-losses.shape[1] != count-]{+False+}:",
         tests="harness/test_around_the_core.py::test_candidates_are_as_many_as_no_rows_say"),
    edit(CHOICE_PLAN, "half of eps0 accounted", "the seed's factor 2, forgotten on one side",
         "return [-2-]{+1+} / sigma",
         tests=IN_CHOICE + "test_epsilon_of_three_mixed_plans_is_that_by_hand_and_of_two_accountants"),
    edit(CHOICE_PLAN, "several choices pure", "as one choice, whose eps0 is the whole epsilon",
         "return PureChoice(self)[- if self.steps == 1 else None-]",
         tests=IN_CHOICE + "test_several_choices_compose_below_the_sum_of_theirs"),
    edit(CHOICE_PLAN, "a quarter of the zCDP", "a range of eps0 has eps0^2 / 8",
         "dp.ZCDpEvent(compute_eps0(noise) ** 2 / [-8-]{+32+})",
         tests=IN_CHOICE + "test_renyi_charges_a_choice_as_the_gaussian_release_of_its_noise"),
    edit(CHOICE_PLAN, "a pair that does not dominate", "the law of some choice is told apart better",
         "np.expm1((inside - eps0) / 2) ** [-2-]{+4+}",
         tests=IN_CHOICE + "test_the_dominating_pair_dominates_every_choice"),
    edit(CHOICE_PLAN, "steps of choices do not compose", "T choices cost as one",
         "loss_distribution(compute_eps0(noise), [-self.steps-]{+1+}, interval)",
         tests=IN_CHOICE + "test_steps_of_a_choice_cost_what_as_many_choices_do"),
    edit(BOUNDED_RANGE, "choices of one strategy", "later choices follow from no answer",
         "for cell in range([-points-]{+1+}):",
         tests="privacy/mechanisms/test_bounded_range.py::test_no_strategy_of_two_candidates_exceeds_the_curve"),
    edit(CHOICE_PLAN, "a search leaves choices out", "the best of many runs is charged for sums alone",
         "[-self.steps * compute_eps0(noise) ** 2 / 8-]{+0.0+} * np.array(orders)",
         tests=IN_CHOICE + "test_a_private_search_charges_for_choices"),
    edit(PARTS, "a unit counts in each part", "of a unit in several classes each counts it whole",
         "loss_steps(self.rows.rows[-, shares-])",
         tests=IN_PART_LOSSES + "test_a_unit_in_several_parts_moves_every_combination_by_at_most_1"),
    edit(PARTS, "rows in no part count in one", "a row that says nothing loses in the first part",
         "        [-return (self.part >= 0) & (self.part < self.parts)-]{+self.part.clamp_(0, self.parts - 1)\n"
         "        return self.part >= 0+}\n",
         tests=IN_PART_LOSSES + "test_a_row_moves_its_own_part_by_0_to_1_whatever_it_says"),
    edit(VOTES, "units torn apart by shards", "a patient's images teach several teachers, and move several votes",
         "[[-units.of-]{+np.arange(len(units.of)) % units.count+}]",
         tests=IN_UNITS + "test_votes_deal_a_units_rows_to_one_shard_whatever_the_others_are"),
    edit(VOTES, "seeds by position", "taking an example away gives other teachers other seeds",
         "yield Chunk(chunk.rows, chunk.y, {+chunk.+}seeds)",
         tests=IN_VOTES + "test_taking_an_example_away_moves_one_vote_a_query"),
    edit(VOTES, "labels left out of the hash", "an example's label does not count as its content",
         "for part in [-(*held, chunk.y)-]{+held+}]",
         tests=IN_VOTES + "test_equal_examples_share_a_shard_and_other_labels_do_not_count_as_equal"),
    edit(VOTES, "votes without the root of two", "a vote that moves changes two counts",
         "return math.sqrt([-2 * -]queries)", tests=IN_VOTES + "test_noise_has_the_spread_that_is_stated"),
    edit(VOTES, "noise for one query", "an example moves a vote of each query",
         "return [-math.sqrt(queries)-]{+1.0+}\n", tests=IN_VOTES + "test_noise_has_the_spread_that_is_stated"),
    edit(VOTES, "sampled votes", "epsilon is stated for a sample, and teachers see everybody",
         "if planned.sample_rate < [-1-]{+0+}:",
         tests=IN_VOTES + "test_what_cannot_be_asked_is_refused_in_one_sentence"),
)  # fmt: skip
