"""Mutants of epsilon: accountants, calibration, the second opinion and private selection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

ACCOUNT, SELECT = "privacy/core/test_accountant.py::test_", "privacy/core/test_private_search.py::test_"

MUTANTS = (
    Mutant(
        "accounted without relative noise", "a release with half the noise costs as one with all of it",
        "core/accounting/accountant.py",
        edit("one.event(sigma * one.relative_noise)", "one.event(sigma)"),
        (ACCOUNT + "relative_noise_multiplies_sigma",
         ACCOUNT + "a_mean_before_sampled_steps_costs_what_the_ledger_says"),
    ),
    Mutant(
        "rate squared", "amplification is counted twice", "core/plan.py",
        edit("dp.PoissonSampledDpEvent(self.sample_rate, event)",
             "dp.PoissonSampledDpEvent(self.sample_rate**2, event)"),
        (ACCOUNT + "golden_figures", ACCOUNT + "an_independent_accountant_brackets_the_stated_epsilon"),
    ),
    Mutant(
        "one step short", "AdaDPS prints the epsilon of the epochs before", "core/accounting/accountant.py",
        edit("one.event(sigma * one.relative_noise), one.steps)",
             "one.event(sigma * one.relative_noise), max(1, one.steps - 1))"),
        (ACCOUNT + "an_independent_accountant_brackets_the_stated_epsilon",),
    ),
    Mutant(
        "full batches without composition", "T steps cost as one", "core/accounting/accountant.py",
        edit("total = sum(release.steps / release.relative_noise**2 for release in plan)",
             "total = max(release.steps / release.relative_noise**2 for release in plan)"),
        (ACCOUNT + "full_batch_releases_of_different_noise_compose_as_one_gaussian",),
    ),
    Mutant(
        "relative noise not squared", "full batches of more noise cost too little", "core/accounting/accountant.py",
        edit("total = sum(release.steps / release.relative_noise**2",
             "total = sum(release.steps / release.relative_noise**4"),
        (ACCOUNT + "full_batch_releases_of_different_noise_compose_as_one_gaussian",),
    ),
    Mutant(
        "ten times the delta", "epsilon is stated at another delta", "core/accounting/accountant.py",
        edit("            accountant.compose(event)\n        return float(accountant.get_epsilon(delta))",
             "            accountant.compose(event)\n        return float(accountant.get_epsilon(10 * delta))"),
        (ACCOUNT + "golden_figures",),
    ),
    Mutant(
        "Renyi at another delta", "epsilon is stated at another delta", "core/accounting/accountant.py",
        edit("        accountant.compose(event)\n    return float(accountant.get_epsilon(delta))",
             "        accountant.compose(event)\n    return float(accountant.get_epsilon(10 * delta))"),
        (ACCOUNT + "golden_figures", ACCOUNT + "rdp_is_never_below_pld"),
    ),
    Mutant(
        "Renyi without the conversion", "the divergence at the best order is not epsilon",
        "core/accounting/accountant.py",
        edit("        accountant.compose(event)\n    return float(accountant.get_epsilon(delta))",
             "        accountant.compose(event)\n    return float(min(accountant._rdp))"),
        (ACCOUNT + "rdp_is_never_below_pld", ACCOUNT + "golden_figures"),
    ),
    Mutant(
        "no sigma, no epsilon", "a run without noise states epsilon 0", "core/accounting/accountant.py",
        edit("    if sigma == 0:\n        return math.inf\n    if (pure",
             "    if sigma == 0:\n        return 0.0\n    if (pure"),
        (ACCOUNT + "no_privacy_asked_means_no_noise",),
    ),
    Mutant(
        "a hint that is almost right", "a remembered sigma is believed above the budget",
        "core/accounting/accountant.py",
        edit("0.999 * budget.epsilon < reached(hint) <= budget.epsilon",
             "0.9 * budget.epsilon < reached(hint) <= 1.1 * budget.epsilon"),
        (ACCOUNT + "a_remembered_sigma_is_believed_only_if_it_passes",),
    ),
    Mutant(
        "bisection to the unsafe side", "Opacus' issue 346: the sigma returned overshoots the target",
        "core/accounting/accountant.py",
        edit("return math.log(ratio) + PRECISION  #", "return math.log(ratio) - 1e-3  #")
        + edit("    if not reached(sigma) <= target:", "    if False:"),
        (ACCOUNT + "calibration_of_full_batches_reaches_the_target_from_below",),
    ),
    Mutant(
        "sigma rounded down", "six digits of sigma, the last one on the wrong side", "core/accounting/accountant.py",
        edit("from decimal import ROUND_CEILING, Context", "from decimal import ROUND_FLOOR, Context")
        + edit("Context(prec=6, rounding=ROUND_CEILING)", "Context(prec=3, rounding=ROUND_FLOOR)")
        + edit("    if not reached(sigma) <= target:", "    if False:"),
        (ACCOUNT + "calibration_of_full_batches_reaches_the_target_from_below",),
    ),
    Mutant(
        "sigma never asked about", "what a search believes is not what an accountant says",
        "core/accounting/accountant.py",
        edit("    if not reached(sigma) <= target:", "    if False:"),
        (ACCOUNT + "an_accountant_that_does_not_fall_with_sigma_is_refused",),
    ),
    Mutant(
        "a delta above every chance", "delta alone meets the plan, and no noise is added",
        "core/accounting/accountant.py",
        edit("if chance <= budget.delta:", "if False:"),
        (ACCOUNT + "a_delta_that_covers_everyone_who_is_sampled_is_refused",),
    ),
    Mutant(
        "no second opinion", "two accountants contradict each other, and nobody says so",
        "core/accounting/crosscheck.py",
        edit("if stated < other.lower or too_high:", "if too_high:"),
        (ACCOUNT + "a_contradiction_between_accountants_is_refused",),
    ),
    Mutant(
        "a second opinion of another plan", "full batches are compared with a single step",
        "core/plan.py",
        edit("prv.GaussianMechanism(noise / math.sqrt(self.steps))", "prv.GaussianMechanism(noise)"),
        (ACCOUNT + "an_independent_accountant_brackets_the_stated_epsilon",),
    ),
    Mutant(
        "the best of many for one", "a search costs as one run", "core/accounting/private_search.py",
        edit("accountant.compose(RepeatAndSelectDpEvent(run, repeats.mean, repeats.shape))", "accountant.compose(run)"),
        (SELECT + "forgetting_to_account_for_the_search_costs_two_to_three_times",
         SELECT + "golden_figures_and_calibration_from_below"),
    ),
    Mutant(
        "the theorem without its choice", "the second account of a search is too low to contradict the first",
        "core/accounting/private_search.py",
        edit("search = one_run + (1 + repeats.shape) * choice + ", "search = one_run + choice + "),
        (SELECT + "the_theorem_written_out_equals_dp_accounting",),
    ),
    Mutant(
        "a fixed number of runs", "who knows how many runs the best had to beat pays for all of them",
        "core/accounting/private_search.py",
        edit("    return runs\n", "    return max(1, round(repeats.mean))\n"),
        (SELECT + "draws_follow_the_distribution",),
    ),
    Mutant(
        "no opinion of tiny numbers", "a statement of 0.0015 where 3 is true passes", "core/accounting/crosscheck.py",
        edit("if FAR * stated < upper < math.inf else None", "if False else None"),
        ("privacy/core/test_accountant.py::test_a_statement_far_below_the_truth_is_refused_however_small",),
    ),
    Mutant(
        "searches that contradict", "two accounts of a search differ, and nobody says so",
        "core/accounting/private_search.py",
        edit("if max(stated, 0.05) < other / (1 + _LOOSE):", "if False:"),
        (SELECT + "two_accounts_of_a_search_that_contradict_each_other_are_refused",),
    ),
    Mutant(
        "a search of one noise", "its curve is that of the first release alone", "core/accounting/private_search.py",
        edit("        for release in plan:\n            total", "        for release in plan[:1]:\n            total"),
        (SELECT + "a_plan_of_unlike_releases_is_one_sequence_in_both_accounts",),
    ),
    Mutant(
        "calibration of another budget", "a cached sigma is that of a larger epsilon, unasked",
        "core/accounting/calibration.py",
        edit("    sigma = accountant.calibrate(plan, budget, name, hint)\n",
             "    sigma = hint or accountant.calibrate(plan, budget, name, hint)\n"),
        ("privacy/core/test_calibration.py::test_a_damaged_or_wrong_calibration_is_made_again",),
    ),
)  # fmt: skip
