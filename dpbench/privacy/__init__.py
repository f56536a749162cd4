"""The closed middle: every epsilon that dpbench states rests on this folder. Each change here is a reviewed change.

Three rings. `core` is everything that stands between a plan and one noisy sum, which is all that most learners ask:
read it in one evening, and you know why a sum is private. `mechanisms` has each other question in a module of its own,
all of them named in `mechanisms.table`. `purity` checks, by sampling, what the argument assumes of row functions (row i
reads row i alone, and remembers nothing); it proves nothing, and you can leave it for another evening.

Read `core` in this order. The docstring of `core.sum` is the map: it states the whole argument.

1. `plan`: what a learner declares, and the ledger that holds it to that. `closed`: why nobody can declare more.
2. `chunk`, `rows`: what a row function sees of private rows, and for how long.
3. `ledger_curator`, `privacy.binding`, `privacy.curator`: the one way to answer a question, the one way to make a
   curator, and what a learner holds of it. `guarding`: what a question asks of the guard. `sum`: the question itself:
   sample, clip, add, noise. `head`: the row function that most learners ask. `map`: rows transformed once.
4. `exact.elementwise`, `exact.limits`, `exact.quantised`, `exact.sums`, `exact.products`, `exact.tiles`,
   `exact.kernels`, `exact.surroundings`: sums in integers.
5. `forms.contributions`, `forms.blocks`, `forms.rounding`: what a row may contribute, and how long that is.
6. `randomness`, `noise`, `discrete`: samples and noise, repeated or secure.
7. `accounting.accountant`, `accounting.crosscheck`: epsilon from plan and sigma, by two libraries.

Not needed for the argument: `witness` (what an audit sees), `forms.residual` (the form of one learner, GEP), the rest
of `accounting` (a cache that is believed only if it passes; several rows of one person; membership tests; the best of
several runs; the whole curve; replacing an example), members of `Question` from `row_function` on (for laws and
searches), `PureCost` and `draw` (of other laws).

Private rows: `rows.PrivateRows`. For a learner, only a curator reads them, or, in searches that no epsilon is stated
for, `harness.tuning.stack`; `dpbench inspect` reads them where it is told to, and says so, and `dpbench audit` asks
questions again over some of them. `harness.guarantee` computes a result's epsilon by `core.accounting`.

The claims, each with the modules that keep it and the tests that try to break it. Those of a mechanism beside sums are
in its line of `mechanisms.table`. A test holds both to the folder:

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
core asks of a guard what a question needs, and no more  core.guarding                  test_binding
what cannot be compared is refused                       purity.kinds                   test_purity
a name is followed wherever code may look it up          purity.names                   test_purity, test_leftovers
a row function reads its own row alone                   purity.spotchecks              test_purity, test_curator
a row function that fails tells no private value         purity.failures                test_purity
a row function opens nothing and starts nothing          purity.quiet_room              test_quiet_room
of everything that Python tells of, in its thread        purity.audit_events            test_quiet_room
what a row function prints, warns of or logs is withheld purity.outlets                 test_quiet_room
each question has draws of its own, no two share noise   core.randomness                test_randomness, test_run
each example is sampled with its chance, on its own      core.randomness                test_mechanisms, test_randomness
secure draws come from the operating system alone        core.randomness                test_randomness
secure noise is exact: a discrete Gaussian, rounded      core.discrete                  test_discrete
noise is normal with std sigma * clip, on a public grid  core.noise, core.sum           test_mechanisms
one example moves a sum by at most the clip, in integers core.exact.sums                test_sums, test_curator
integers add up exactly, by whatever instructions        core.exact.products            test_exact
no sum of 32 bits overflows                              core.exact.tiles               test_exact
sums and compiled loops have the same limits             core.exact.limits              test_exact
a compiled step adds the integers that sums define       core.exact.kernels             test_exact, test_head
an example's 8-bit numbers are a function of it alone    core.exact.quantised           test_exact
a row has the same bits wherever it stands               core.exact.elementwise         test_exact, test_positions
what is set around a question changes no answer          core.exact.surroundings        test_sums
each form's sum and norms are those of its rows          core.forms.contributions       test_contributions, test_sums
norms are never under-estimated                          core.forms.rounding            test_contributions
a block has a clip of its own; other forms are refused   core.forms.blocks              test_binding, test_bases
epsilon follows from plan and sigma; two libraries agree core.accounting.accountant     test_accountant
the odds of a membership test are bounded by the curve   core.accounting.membership     test_membership
what several rows of one person cost is accounted for    core.accounting.group          test_group
what replacing one example costs is accounted for        core.accounting.replacement    test_replacement
a Gaussian curve that is stated covers the plan's        core.accounting.curve          test_curve
the best of several runs has the epsilon of the search   core.accounting.private_search test_private_search
sigma reaches the budget from below                      core.accounting.accountant     test_accountant
a remembered sigma is believed only if it passes         core.accounting.calibration    test_calibration
accountants that contradict each other refuse a run      core.accounting.crosscheck     test_accountant
an audit sees sums of published randomness alone         core.witness                   test_audit
what the closed table does not name is not believed      mechanisms.table               test_binding
an audit asks every question again over unexpected rows  mechanisms.replay              test_audit, test_votes
======================================================== ============================== ==============================
"""

MECHANISM = "exact-sums-2"
"""How samples, sums and noise are made: results of one word repeat each other. Another word with every change."""
