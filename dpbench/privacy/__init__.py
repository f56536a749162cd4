"""The code on which every epsilon that dpbench states rests. It is closed to plugins, and every change is reviewed.

It has three rings. `core` is all the code between a plan and a noisy sum, the only question that most learners ask:
read it in one evening, and you know why a sum is private. `mechanisms` has one module for each other question, and
`mechanisms.table` lists them all. `purity` checks, by sampling, what the argument assumes of row functions (row i
depends on row i alone, and the function remembers nothing); it proves nothing: leave it for another evening.

Read `core` in this order. The docstring of `core.sum` is the map: it states the whole argument.

1. `plan`: the plan that a learner declares, and the ledger that enforces it. `closed`: why only dpbench's plans count.
2. `chunk`, `rows`: what a row function sees of private rows, and for how long.
3. `ledger_curator`, `privacy.binding`, `privacy.curator`: the only way to answer a question, the only way to make a
   curator, and the learner's handle of it. `guarding`: the interface of the guard. `sum`: the question itself: sample,
   clip, add, noise. `head`: the row function that most learners use. `map`: rows transformed once.
4. `exact.elementwise`, `exact.limits`, `exact.quantised`, `exact.sums`, `exact.products`, `exact.tiles`,
   `exact.kernels`, `exact.surroundings`: sums in integers.
5. `forms.contributions`, `forms.blocks`, `forms.rounding`: what a row may contribute, and bounds on its norm.
6. `randomness`, `noise`, `discrete`: samples and noise, repeatable or secure.
7. `accounting.accountant`, `accounting.crosscheck`: epsilon from plan and sigma, by two libraries.

Not needed for the argument: `witness` (what an audit sees), `forms.residual` (the form of one learner, GEP), the rest
of `accounting` (a cache that is believed only if it passes; several rows of one person; membership tests; the best of
several runs; the whole curve; replacing an example), members of `Question` from `row_function` on (for laws and
searches), `PureDpCost` and `Draws.draw` (for noise that is not Gaussian).

`rows.PrivateRows` holds the private rows. Only a curator reads them for a learner, or `harness.tuning.stack` in
searches for which no epsilon is stated. `dpbench inspect` reads them if the user asks for it, and says so; `dpbench
audit` repeats questions over some of them. `harness.guarantee` computes a result's epsilon with `core.accounting`.

The claims, each with the modules that keep it and the tests that try to break it. `mechanisms.table` has the claims of
mechanisms other than sums. A test checks that both lists match the folder:

======================================================== ============================== ==============================
claim                                                    where                          tested in
======================================================== ============================== ==============================
no more answers than planned, spent before rows are read core.ledger_curator, core.plan test_curator, test_binding
noise, sample rates and ledger follow plan and sigma     binding                        test_binding, test_run
no attribute that a learner holds leads to private rows  curator                        test_curator
only dpbench's plans, questions and forms count          core.closed                    test_binding, test_plan
a malformed plan or budget is refused                    core.plan                      test_plan
a chunk is a copy of its rows, wiped after use           core.rows, core.chunk          test_curator
the gradient of a head needs no guard: it keeps nothing  core.head                      test_curator, test_binding
mapped rows are functions of each row alone, in 8 bits   core.map                       test_curator, test_purity
a row function remembers nothing; a refusal is final     purity.guard, purity.reach     test_purity
the guard has only the methods that questions need       core.guarding                  test_binding
objects that cannot be compared are refused              purity.kinds                   test_purity
names are followed to every place that code may read     purity.names                   test_purity, test_leftovers
a row function reads its own row alone                   purity.spotchecks              test_purity, test_curator
a failing row function reveals no private value          purity.failures                test_purity
a row function opens nothing and starts nothing          purity.quiet_room              test_quiet_room
every audit event of Python in its thread is judged      purity.audit_events            test_quiet_room
output, warnings and logs of a row function are withheld purity.outlets                 test_quiet_room
each question has draws of its own, no two share noise   core.randomness                test_randomness, test_run
each example is sampled independently, at its rate       core.randomness                test_mechanisms, test_randomness
secure draws come from the operating system alone        core.randomness                test_randomness
secure noise is exact: a discrete Gaussian, rounded      core.discrete                  test_discrete
noise is normal with std sigma * clip, on a public grid  core.noise, core.sum           test_mechanisms
one example moves a sum by at most the clip, in integers core.exact.sums                test_sums, test_curator
integer sums are exact with all processor instructions   core.exact.products            test_exact
no sum of 32 bits overflows                              core.exact.tiles               test_exact
sums and compiled loops have the same limits             core.exact.limits              test_exact
a compiled step adds the integers that sums define       core.exact.kernels             test_exact, test_head
an example's 8-bit numbers depend on this example alone  core.exact.quantised           test_exact
a row has the same bits at every position                core.exact.elementwise         test_exact, test_positions
torch settings around a question change no answer        core.exact.surroundings        test_sums
each form's sum and norms are those of its rows          core.forms.contributions       test_contributions, test_sums
norms are never under-estimated                          core.forms.rounding            test_contributions
a block has a clip of its own; other forms are refused   core.forms.blocks              test_binding, test_bases
epsilon follows from plan and sigma; two libraries agree core.accounting.accountant     test_accountant
the odds of a membership test are bounded by the curve   core.accounting.membership     test_membership
the cost of several rows of one person is bounded        core.accounting.group          test_group
the cost of replacing one example is bounded             core.accounting.replacement    test_replacement
a stated Gaussian curve covers the plan's curve          core.accounting.curve          test_curve
the best of several runs has the epsilon of the search   core.accounting.private_search test_private_search
sigma reaches the budget from below                      core.accounting.accountant     test_accountant
a cached sigma is used only if its epsilon fits          core.accounting.calibration    test_calibration
accountants that contradict each other refuse a run      core.accounting.crosscheck     test_accountant
an audit sees sums only if their noise is published      core.witness                   test_audit
plans and questions outside the table are refused        mechanisms.table               test_binding
an audit asks every question again over unexpected rows  mechanisms.replay              test_audit, test_votes
======================================================== ============================== ==============================
"""

MECHANISM = "exact-sums-2"
"""The version of samples, sums and noise; change it whenever they change. Results repeat only within one version."""
