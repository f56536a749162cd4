"""The closed middle: whoever trusts an epsilon of dpbench trusts this folder. A change here is a reviewed change.

To be read in this order: `curator` (what answers a learner), `binding` (what makes one), `plan`, `rows`, `purity` (what
a row function may not do), `randomness`, `discrete` (noise of --secure-rng), `mechanisms`, `forms` (what a row may
contribute), `accounting` (epsilon from plan and sigma). Private rows live in `rows.PrivateRows`, which only a curator
reads; a result's epsilon is computed by `harness.guarantee` from `accounting`.

=========================================================== ============================ ==============================
claim                                                       where                        tested in
=========================================================== ============================ ==============================
no more answers than planned, spent before anything is read curator, plan                test_curator, test_binding
noise, sample rates and ledger are those of plan and sigma  binding                      test_binding, test_run
no attribute of what a learner holds leads to a private row curator                      test_curator
a row function reads its own row alone                      purity.spotchecks            test_purity, test_curator
a row function remembers nothing; a refusal is final        purity.guard, purity.reach   test_purity
a row function that fails tells no private value            purity.failures              test_purity
a chunk is a copy of its rows, wiped after use              rows                         test_curator
each question has draws of its own, no two share noise      randomness                   test_randomness, test_run
each example is sampled with its chance, on its own         randomness                   test_mechanisms
secure draws come from the operating system alone           randomness                   test_randomness
secure noise is exact: a discrete Gaussian, rounded         discrete                     test_discrete
one example moves a sum by at most the clip                 mechanisms                   test_mechanisms, test_curator
noise is normal with std sigma * clip, on a public grid     mechanisms                   test_mechanisms
norms are never under-estimated                             forms.rounding               test_contributions
a form outside the closed set is refused                    forms.blocks                 test_contributions, test_bases
a residual is no longer than its bound                      forms.gep.residual           test_bases
a malformed plan or budget is refused                       plan                         test_plan
epsilon follows from plan and sigma, as two libraries say   accounting.accountant        test_accountant
accountants that contradict each other refuse a run         accounting.crosscheck        test_accountant
sigma reaches the budget from below                         accounting.calibration       test_calibration
the best of several runs has the epsilon of the search      accounting.private_selection test_repeats
=========================================================== ============================ ==============================
"""

MECHANISM = "exact-sums-1"
"""How samples, sums and noise are made: results of one word repeat each other. Another word with every change."""
