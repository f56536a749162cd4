"""Mutants of what holds row functions to their own row."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

PURITY = "privacy/purity/test_purity.py::test_"
SPOT, FAIL = (
    "privacy/purity/test_purity.py::TestSpotChecks::test_",
    "privacy/purity/test_purity.py::TestFailures::test_",
)
QUIET = "privacy/purity/test_quiet_room.py::test_"

MUTANTS = (
    Mutant(
        "guard off for containers", "a list collects private rows", "purity/kinds.py",
        edit("((list, tuple, set, frozenset, deque), Kind(tuple, _items))",
             "((list, tuple, set, frozenset, deque), Kind())"),
        (PURITY + "a_list_that_a_row_function_fills", PURITY + "any_container_that_a_row_function_changes"),
    ),
    Mutant(
        "guard off for dictionaries", "a dictionary collects private rows", "purity/kinds.py",
        edit("((dict, types.MappingProxyType), Kind(_of_dict, _names_of_dict))",
             "((dict, types.MappingProxyType), Kind())"),
        (PURITY + "any_container_that_a_row_function_changes",),
    ),
    Mutant(
        "guard off for bytes", "a bytearray collects private labels", "purity/kinds.py",
        edit("((bytearray, array.array), Kind(state=len, contents=bytes))", "((bytearray, array.array), Kind())"),
        (PURITY + "any_container_that_a_row_function_changes",),
    ),
    Mutant(
        "guard off for arrays", "an array collects private counts", "purity/kinds.py",
        edit("((np.ndarray,), Kind(_of_array, lambda found: _items(found.flat), _state_of_array, _contents_of_array))",
             "((np.ndarray,), Kind())"),
        (PURITY + "an_array_that_a_row_function_changes",),
    ),
    Mutant(
        "guard off for tensors", "a tensor adds up private moments", "purity/kinds.py",
        edit("((Tensor,), Kind(_of_tensor, _names_of_tensor, _state_of_tensor, _contents_of_tensor))",
             "((Tensor,), Kind())"),
        (PURITY + "tensors_changed_in_place_by_any_road",),
    ),
    Mutant(
        "what tensors hold", "a tensor is written to behind its version counter", "purity/kinds.py",
        edit("_state_of_tensor, _contents_of_tensor))", "_state_of_tensor))"),
        (PURITY + "a_large_tensor_changed_behind_its_version_counter", PURITY + "tensors_changed_in_place_by_any_road"),
    ),
    Mutant(
        "guard off for closures", "a variable outside holds a private norm", "purity/kinds.py",
        edit("    cells = map(cell_of, function.__closure__ or ())\n", "    cells: tuple[Any, ...] = ()\n")
        + edit('        *(f"closure variable `{name}`" for name in function.__code__.co_freevars),\n', ""),
        (PURITY + "a_variable_that_a_row_function_assigns",),
    ),
    Mutant(
        "guard off for objects", "an attribute holds a private mean", "purity/kinds.py",
        edit("    if has_attributes:\n        return (INSTANCE,)\n", "    if has_attributes:\n        return ()\n"),
        (PURITY + "objects_slots_and_classes_that_remember",),
    ),
    Mutant(
        "guard off for globals", "a global of the plugin's module holds private rows", "purity/reach.py",
        edit("return kinds if known else (*kinds, self._names, data_lent(thing))", "return kinds"),
        (PURITY + "a_global_that_a_row_function_assigns_or_fills",),
    ),
    Mutant(
        "guard off for classes", "an attribute of a class holds private rows", "purity/reach.py",
        edit("classes = (_CLASSES,) if _classes(thing) else ()", "classes = ()"),
        (PURITY + "objects_slots_and_classes_that_remember",),
    ),
    Mutant(
        "guard off for generators", "how far a generator has moved tells how many rows there were", "purity/reach.py",
        edit("self._entries = list(_generators()) if thorough and generators else []", "self._entries = []"),
        (PURITY + "generators_that_a_row_function_draws_from",),
    ),
    Mutant(
        "iterators pass", "an iterator moves on, by as much as private rows say", "purity/kinds.py",
        edit("not isinstance(cls.__next__, types.FunctionType):\n        return None",
             "not isinstance(cls.__next__, types.FunctionType):\n        return ()"),
        (PURITY + "iterators_are_refused_unread",),
    ),
    Mutant(
        "a refusal that can be caught", "a learner tries roads until one is not watched", "purity/guard.py",
        edit("            self._refusal = error.with_traceback(None)\n", ""),
        (PURITY + "refusing_is_final_even_for_who_catches_it", FAIL + "a_failure_is_final"
         "_for_no_noise_covers_whether_a_row_fails"),
    ),
    Mutant(
        "no comparison after the call", "nothing that a row function does is seen", "purity/guard.py",
        edit("            self._expect(self._reach.change(self._before, after))\n", ""),
        (PURITY + "a_list_that_a_row_function_fills", PURITY + "what_begins_late_is_met_late"),
    ),
    Mutant(
        "maps unguarded", "a transform collects private rows", "purity/guard.py",
        edit('held = self._hold(lambda chunk: transform(chunk.x), "A transform given to map")',
             'what = "A transform given to map"\n'
             '            held = GuardedFunction(lambda chunk: transform(chunk.x), what, Reach(len, thorough=False))')
        + edit("yield from held.check_chunks(chunks, (1.0,), CheckSchedule(MAPS, self._generator))",
               "yield from (blocks_of(transform(chunk.x)) for chunk in chunks)"),
        (PURITY + "a_transform_given_to_map_may_not_remember_either",),
    ),
    Mutant(
        "rows of any number", "two rows for one example: each is clipped, together they move twice the clip",
        "purity/guard.py",
        edit("            if len(block) != len(chunk):", "            if False:"),
        ("privacy/test_curator.py::TestRefusals::test_returning_fewer_rows_than_examples",),
    ),
    Mutant(
        "no spot checks", "rows read their neighbours", "purity/spotchecks.py",
        edit("(place == drawn for place in range(length))", "(False for place in range(length))"),
        (SPOT + "a_small_leak_of_the_neighbours_in_every_row",),
    ),
    Mutant(
        "spot checks at announced moments", "a learner reads neighbours at all others", "purity/spotchecks.py",
        edit("drawn = int(generator.integers(length))", "drawn = 0"),
        (SPOT + "the_moments_are_those_of_the_stream",),
    ),
    Mutant(
        "not beside other rows", "a row holds a millionth of the batch's mean", "purity/spotchecks.py",
        edit('self._expect(not repeats and self._near(self._kept, beside), what, "beside other rows")', "pass"),
        (SPOT + "a_small_leak_of_the_neighbours_in_every_row",),
    ),
    Mutant(
        "not among fewer rows", "a row is divided by the number drawn", "purity/spotchecks.py",
        edit('        self._expect(self._near(kept, self._fewer(rows, len(few))), what, "among fewer rows")\n', ""),
        (SPOT + "a_small_share_of_the_drawn_size_in_every_row",),
    ),
    Mutant(
        "failures told in full", "the text of an exception holds a private label", "purity/failures.py",
        edit("failure = _without_text(error, what, public)", "failure = error"),
        (FAIL + "the_type_and_the_line_are_told_and_nothing_else",),
    ),
    Mutant(
        "refusals of a plugin told in full", "a plugin raises dpbench's own error with a label in it",
        "purity/failures.py",
        edit('if isinstance(error, DpbenchError) and _package(traces[-1]) == "dpbench":',
             "if isinstance(error, DpbenchError):"),
        (FAIL + "a_refusal_that_a_plugin_writes_itself_is_withheld_too",),
    ),
    Mutant(
        "a handful of rows beside others", "a leak in one row of twenty is seen in one fit of three",
        "purity/spotchecks.py",
        edit("MANY = 2**17", "MANY = 1"),
        (SPOT + "a_leak_in_one_row_of_twenty_is_seen_in_the_first_step",),
    ),
    Mutant(
        "a room with open doors", "a row function writes private rows into a file", "purity/quiet_room.py",
        edit("if said is None or self._may(event, details):", "if True:"),
        (QUIET + "what_leaves_a_row_function_beside_its_result_is_refused_before_it_happens",),
    ),
    Mutant(
        "a refusal of a room that can be caught", "a row function tries doors until one is open",
        "purity/quiet_room.py",
        edit("    if room.refused is not None:\n        raise", "    if False:\n        raise"),
        (QUIET + "a_refusal_that_a_row_function_catches_is_final_all_the_same",),
    ),
    Mutant(
        "a room that can be heard", "a private loss is printed", "purity/quiet_room.py",
        edit("        room.spoke = True\n        return True\n", "        room.spoke = True\n"),
        ("privacy/purity/test_quiet_room.py::TestOutput::test_nothing_of_it_is_seen_whatever_road_it_takes",),
    ),
    Mutant(
        "the library's shelf", "a row function keeps private values on torch itself", "purity/reach.py",
        edit("(*kinds, self._names, data_lent(thing))", "(*kinds, _NAMED)"),
        ("privacy/purity/test_quiet_room.py::TestState::test_an_attribute_of_a_librarys_module",),
    ),
    Mutant(
        "memory of C", "a buffer of ctypes holds a private norm", "purity/kinds.py",
        edit("    if issubclass(cls, _IN_C):\n        return None\n", ""),
        ("privacy/purity/test_quiet_room.py::TestState::test_what_ctypes_made_is_refused_unread",),
    ),
)  # fmt: skip
