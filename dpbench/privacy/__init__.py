"""The closed middle: whoever trusts an epsilon of dpbench trusts this folder. A change here is a reviewed change.

To be read in this order: `curator` (what answers a learner), `binding` (what makes one), `plan`, `rows`, `purity` (what
a row function may not do), `randomness`, `discrete` (noise of --secure-rng), `mechanisms` (noisy sums), `choices`,
`votes`, `exact` (sums in integers), `forms` (what a row may contribute), `accounting` (epsilon from plan and sigma),
`witness` (what an audit sees). Private rows: `rows.PrivateRows`. For a learner, only a curator reads them, or, in
searches that no epsilon is stated for, `learning.stack`; `dpbench inspect` reads them where it is told to, and says so,
and `dpbench audit` asks questions again over some of them. `harness.guarantee` computes a result's epsilon by
`accounting`.

========================================================== ============================ ================================
claim                                                      where                        tested in
========================================================== ============================ ================================
no more answers than planned, spent before any row is read curator, plan                test_curator, test_binding
noise, sample rates and ledger are those of plan and sigma binding                      test_binding, test_run
no attribute of what a learner holds leads to private rows curator                      test_curator
a malformed plan or budget is refused                      plan                         test_plan
a chunk is a copy of its rows, wiped after use             rows                         test_curator
a row function remembers nothing; a refusal is final       purity.guard, purity.reach   test_purity
what cannot be compared is refused                         purity.kinds                 test_purity
a row function reads its own row alone                     purity.spotchecks            test_purity, test_curator
a row function that fails tells no private value           purity.failures              test_purity
each question has draws of its own, no two share noise     randomness                   test_randomness, test_run
each example is sampled with its chance, on its own        randomness                   test_mechanisms, test_randomness
secure draws come from the operating system alone          randomness                   test_randomness
secure noise is exact: a discrete Gaussian, rounded        discrete                     test_discrete
noise is normal with std sigma * clip, on a public grid    mechanisms                   test_mechanisms
one example moves a sum by at most the clip, in integers   exact.sums                   test_sums, test_curator
one example moves each loss by 0 to 1, and the law by eps0 choices                      test_choice
one example moves one vote a query, whatever teachers say  votes                        test_votes
integers add up exactly, by whatever instructions          exact.products               test_exact
an example's 8-bit numbers are a function of it alone      exact.quantised              test_exact
a row has the same bits wherever it stands                 exact.elementwise            test_exact, test_positions
what is set around a question changes no answer            exact.surroundings           test_sums
each form's sum and norms are those of its rows            forms.contributions          test_contributions, test_sums
norms are never under-estimated                            forms.rounding               test_contributions
a block has a clip of its own, and other forms are refused forms.blocks                 test_binding, test_bases
a row in a cell counts once, there alone                   forms.cells                  test_choice
a basis that is not orthonormal is refused                 forms.gep.bases              test_bases
a residual is no longer than its bound                     forms.gep.residual           test_bases, test_residual_guards
how a sample is cut into chunks moves no residual          forms.gep.residual_sum       test_sums
epsilon follows from plan and sigma, as two libraries say  accounting.accountant        test_accountant
no choice of one eps0 loses more than one pair of laws     accounting.bounded_range     test_choice
sigma reaches the budget from below                        accounting.accountant        test_accountant
a remembered sigma is believed only if it passes           accounting.calibration       test_calibration
accountants that contradict each other refuse a run        accounting.crosscheck        test_accountant
the best of several runs has the epsilon of the search     accounting.private_selection test_private_selection
an audit sees sums of published randomness alone           witness                      test_audit
========================================================== ============================ ================================
"""

MECHANISM = "exact-sums-2"
"""How samples, sums and noise are made: results of one word repeat each other. Another word with every change."""
