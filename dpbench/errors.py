"""Everything dpbench refuses, and why.

::

    DpbenchError                 one sentence for the user: what was expected, what came, from whom, what to do
    ├── SpecError                a flag, key or option that does not fit
    │   └── UnknownName          a name that nothing registers; lists what exists
    ├── PluginError              a plugin that breaks the contract of the hooks
    │   ├── DuplicateName        two plugins claim one name
    │   └── ComponentFailed      a plugin's code raised while it worked
    ├── PrivacyError             a statement of privacy that would be wrong
    │   ├── PlanError            a plan that is malformed or cannot fit the budget
    │   ├── NotPlanned           a release outside the plan, or more steps than planned
    │   ├── NotPerExample        a row that depends on other rows
    │   ├── NotPure              a row function that remembers
    │   └── AccountantsDisagree  two independent accountants contradict each other
    ├── DataError                data that is malformed
    │   ├── DataMissing          data that is not on this machine; says what to fetch and where it looked
    │   └── DamagedFile          a cache file that fails its checksum
    ├── OutputError              a place that cannot be written
    └── LawBroken                a plugin breaks a law of `dpbench.testing`
"""


class DpbenchError(Exception):
    """Base of everything dpbench refuses; its text is one sentence meant for the user."""


class SpecError(DpbenchError):
    """A flag, key or option that does not fit."""


class UnknownName(SpecError):
    """A name that nothing registers."""


class PluginError(DpbenchError):
    """A plugin that breaks the contract of the hooks."""


class DuplicateName(PluginError):
    """Two plugins claim one name."""


class ComponentFailed(PluginError):
    """A plugin's own code raised while it worked."""


class PrivacyError(DpbenchError):
    """A statement of privacy that would be wrong."""


class PlanError(PrivacyError):
    """A plan that is malformed or cannot fit the budget."""


class NotPlanned(PrivacyError):
    """A release outside the plan, or more steps than planned."""


class NotPerExample(PrivacyError):
    """A row that depends on other rows."""


class NotPure(PrivacyError):
    """A row function that remembers."""


class AccountantsDisagree(PrivacyError):
    """Two independent accountants contradict each other."""


class DataError(DpbenchError):
    """Data that is malformed."""


class DataMissing(DataError):
    """Data that is not on this machine."""


class DamagedFile(DataError):
    """A cache file that fails its checksum."""


class OutputError(DpbenchError):
    """A place that cannot be written."""


class LawBroken(DpbenchError, AssertionError):
    """A plugin breaks a law of `dpbench.testing`."""
