"""The errors that dpbench raises, as a hierarchy.

::

    DpbenchError                 one sentence for the user: what was expected, what came, from whom, what to do
    ├── SpecError                a flag, key or option that does not fit
    │   └── UnknownName          a name that nothing registers; lists what exists
    ├── PluginError              a plugin that breaks the contract of the hooks
    │   ├── DuplicateName        two plugins claim one name
    │   └── ComponentFailed      a plugin's code raised an exception
    ├── PrivacyError             a statement of privacy that would be wrong
    │   ├── PlanError            a plan that is malformed or cannot fit the budget
    │   ├── NotPlanned           a release outside the plan, or more steps than planned
    │   ├── NotPerExample        a row that depends on other rows
    │   ├── NotPure              a row function that keeps state
    │   └── AccountantsDisagree  two independent accountants contradict each other
    ├── DataError                data that is malformed
    │   ├── DataMissing          data that is not on this machine; says what to fetch and where it looked
    │   │   └── DocsMissing      the packages that build the documentation
    │   ├── DamagedFile          a cache file that fails its checksum
    │   ├── MalformedFile        a submitted file that cannot be read; names the field
    │   └── ChecksFailed         files of a leaderboard that fail their checks; lists the complaints
    ├── OutputError              a file or folder that cannot be written
    │   └── DocsNotBuilt         a page, a link or a notebook of the documentation is broken
    ├── NotReproducible          a run that cannot be repeated on this machine
    └── LawBroken                a plugin breaks a law of `dpbench.testing`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_MAX_CHARACTERS = 400  # characters of a complaint's field and text
_MAX_COMPLAINTS = 20  # complaints


class DpbenchError(Exception):
    """Base class of all errors that dpbench raises on purpose. The text is meant for the user."""

    final: bool = False  # a question was refused, or state was left behind: no other fit may make up for this one


class SpecError(DpbenchError):
    """A flag, key or option has a value that does not fit."""


class UnknownName(SpecError):
    """A name is not registered."""


class PluginError(DpbenchError):
    """A plugin breaks the contract of the hooks."""


class DuplicateName(PluginError):
    """Two plugins claim the same name."""


class ComponentFailed(PluginError):
    """The code of a plugin raised an exception."""


class PrivacyError(DpbenchError):
    """A privacy statement would be wrong."""


class PlanError(PrivacyError):
    """A plan is malformed or cannot fit the budget."""


class NotPlanned(PrivacyError):
    """A learner asked for a release outside its plan, or for more steps than planned."""


class NotPerExample(PrivacyError):
    """A row function's result for a row depends on other rows."""


class NotPure(PrivacyError):
    """A row function or a learner keeps state."""

    final = True


class AccountantsDisagree(PrivacyError):
    """Two independent accountants contradict each other."""


class DataError(DpbenchError):
    """The data is malformed."""


class DataMissing(DataError):
    """The data is not on this machine."""


class DamagedFile(DataError):
    """A cache file fails its checksum."""


class DocsMissing(DataMissing):
    """The packages that build the documentation are not installed."""


class MalformedFile(DataError):
    """A submitted file cannot be read; `field` names the field, and `said` gives the reason."""

    def __init__(self, field: str, said: str) -> None:
        super().__init__(f"{field}: {said}")
        self.field, self.said = field, said


@dataclass(frozen=True, order=True)
class LeaderboardComplaint:
    """An error in a field of a leaderboard file."""

    file: str
    field: str
    said: str

    def __str__(self) -> str:
        line = f"{self.field[:_MAX_CHARACTERS]}: {self.said[:_MAX_CHARACTERS]}"
        return "".join(
            character if character.isprintable() else "?" for character in line
        )  # a stranger's words on a terminal


class ChecksFailed(DataError):
    """Leaderboard files fail their checks; `consequence` states what dpbench therefore refuses to do."""

    def __init__(self, consequence: str, complaints: Sequence[LeaderboardComplaint]) -> None:
        lines = [f"  {complaint.file}: {complaint}" for complaint in complaints[:_MAX_COMPLAINTS]]
        more = [f"  and {len(complaints) - _MAX_COMPLAINTS} more"] if len(complaints) > _MAX_COMPLAINTS else []
        super().__init__("\n".join([f"{consequence}: {len(complaints)} complaint(s).", *lines, *more]))
        self.complaints = tuple(complaints)


class OutputError(DpbenchError):
    """A file or folder cannot be written."""


class DocsNotBuilt(OutputError):
    """The documentation does not build: a page, a link or a notebook is broken."""


class NotReproducible(DpbenchError):
    """A run cannot be repeated on this machine, for the reason in the message; its result may still be correct."""


class LawBroken(DpbenchError, AssertionError):
    """A plugin breaks a law of `dpbench.testing`."""
