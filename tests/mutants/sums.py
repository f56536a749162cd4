"""Mutants of clipping and of sums in integers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, edit

SUMS, EXACT, BASES = (
    "privacy/core/test_sums.py::test_",
    "privacy/core/test_exact.py::test_",
    "privacy/mechanisms/test_bases.py::test_",
)
UNITS = "privacy/test_units.py::test_"
COMPILED = EXACT + "the_compiled_step_has_the_bits_of_the_one_on_a_gpu"
ONE_ROW = SUMS + "one_row_moves_the_integers_by_at_most_the_clip"
FORMS = "privacy/core/test_contributions.py::test_"

MUTANTS = (
    Mutant(
        "no clip", "one row moves the sum by as much as it likes", "core/exact/sums.py",
        edit("weights = (bounds / norms).mul_(ROOM).clamp_(0, 1)", "weights = torch.ones_like(norms)"),
        (ONE_ROW,),
    ),
    Mutant(
        "twice the clip", "sensitivity is double the noise's", "core/exact/sums.py",
        edit("weights = (bounds / norms).mul_", "weights = (2 * bounds / norms).mul_"),
        (ONE_ROW,),
    ),
    Mutant(
        "no room for the weights' rounding", "a row at the clip ends above it by a float32 rounding",
        "core/exact/sums.py",
        edit(".mul_(ROOM).clamp_(0, 1)", ".clamp_(0, 1)"),
        (SUMS + "a_weight_leaves_room_for_two_roundings_in_float32",),
    ),
    Mutant(
        "rows that are not finite", "one NaN makes every weight NaN: who sees it knows that the row is there",
        "core/exact/sums.py",
        edit("return weights.masked_fill_((norms <= largest).logical_not_(), 0)", "return weights"),
        ("privacy/core/test_mechanisms.py::test_a_row_that_is_not_finite_counts_as_zero", ONE_ROW),
    ),
    Mutant(
        "no room for rounding dense rows", "rounding to the grid lengthens a row beyond the clip", "core/exact/sums.py",
        edit("bound = max(0.0, clip - reserve) if shares is None", "bound = clip if shares is None"),
        (SUMS + "a_row_that_rounds_up_everywhere_stays_within_the_clip",),
    ),
    Mutant(
        "dense rows rounded up", "each entry moves by up to a step, twice what is kept free", "core/exact/sums.py",
        edit("(block * factor).round_().sum(0", "(block * factor).ceil_().sum(0"),
        (SUMS + "a_row_that_rounds_up_everywhere_stays_within_the_clip", ONE_ROW),
    ),
    Mutant(
        "no room for rounding outer products", "rounding lengthens a row beyond the clip", "core/exact/sums.py",
        edit("_shared(grids.products * 2.0**bits, shares) - grids.reserve(reach)",
             "_shared(grids.products * 2.0**bits, shares)"),
        (SUMS + "a_row_that_rounds_up_everywhere_stays_within_the_clip", ONE_ROW),
    ),
    Mutant(
        "the bias outside the norm", "a row with bias is longer than was measured", "core/exact/sums.py",
        edit(".square_().add_(float(bias)).sqrt_()", ".square_().sqrt_()"),
        (ONE_ROW,),
    ),
    Mutant(
        "norms as they come", "a float32 norm may lie below the truth", "core/exact/sums.py",
        edit("total.sqrt_().mul_(_slack(rows.shape[axis], rows.dtype)).add_(TINY)", "total.sqrt_()"),
        (FORMS + "float32_norms_are_never_under_estimated",),
    ),
    Mutant(
        "squares that vanish", "tiny entries have norm zero and are not clipped", "core/exact/elementwise.py",
        edit("TINY = 1e-15  #", "TINY = 0.0  #"),
        (FORMS + "float32_norms_are_never_under_estimated", FORMS + "a_row_of_zeros_has_a_norm_that_can_be_divided_by"),
    ),
    Mutant(
        "no room for rounding scaled products", "rounding lengthens a row beyond the clip", "core/exact/sums.py",
        edit("weights_within(norms, (_shared(clip, shares) - reserve).unsqueeze(0), ROW_LIMIT**2, shares)",
             "weights_within(norms, torch.full_like(norms, clip), ROW_LIMIT**2, shares)"),
        (SUMS + "a_row_that_rounds_up_everywhere_stays_within_the_clip", ONE_ROW),
    ),
    Mutant(
        "scaled rows clipped before the scale", "dividing by a small scale lengthens them again", "core/exact/sums.py",
        edit("spread = _weighted_squares(right, inverse[:, :features].square())",
             "spread = _weighted_squares(right, torch.ones_like(inverse[:, :features]))"),
        (ONE_ROW,),
    ),
    Mutant(
        "rows of few large features", "their left factors overflow two slices", "core/exact/sums.py",
        edit("reach = right.lengths.clamp(min=_least_reach(bits))", "reach = right.lengths"),
        (ONE_ROW,),
    ),
    Mutant(
        "chunks on other grids", "sums of other units are added, and one row counts for many", "core/exact/sums.py",
        edit("if not same or not torch.equal(self.grid, other.grid):", "if False:"),
        (SUMS + "chunks_of_other_shapes_or_scales_are_not_added",),
    ),
    Mutant(
        "a bias of any scale", "its sums wrap around in 64 bits", "core/exact/sums.py",
        edit("if bias and not float(scale[:, features:].max()) <= WIDEST * 2.0**typical:", "if False:"),
        (SUMS + "the_scale_of_a_bias_leaves_room_for_sums_in_64_bits",),
    ),
    Mutant(
        "int32 for sums of any length", "2^17 products of 2^14 overflow", "core/exact/products.py",
        edit("LONGEST = 2**17 - 8", "LONGEST = 2**20"),
        (EXACT + "the_longest_sums_of_a_gpu_do_not_overflow",),
    ),
    Mutant(
        "int32 for longer parts", "2,048 products of 127 and 16,256 overflow", "core/exact/tiles.py",
        edit("PART = 1024  #", "PART = 2048  #"),
        (EXACT + "the_largest_numbers_do_not_overflow",),
    ),
    Mutant(
        "float64 for sums of any length", "above 2^53 integers are rounded, by what the other numbers are",
        "core/exact/products.py",
        edit("DEEPEST = 2**13  #", "DEEPEST = 2**20  #"),
        (EXACT + "long_products_are_exact_in_float64",),
    ),
    Mutant(
        "no clip in the compiled step", "one row moves the sum by as much as it likes", "core/exact/kernels.py",
        edit("weight = min(room / norm * ROOM, share[i])", "weight = share[i]"),
        (COMPILED,),
    ),
    Mutant(
        "no room for rounding in the compiled step", "rounding lengthens a row beyond the clip",
        "core/exact/kernels.py",
        edit("room = clip * share[i] - (reach * move + column_move)", "room = clip * share[i]"),
        (COMPILED,),
    ),
    Mutant(
        "the bias outside the norm of the compiled step", "a row with bias is longer than was measured",
        "core/exact/kernels.py",
        edit("bias = f8(1) if column > 0 else f8(0)", "bias = f8(0)"),
        (COMPILED,),
    ),
    Mutant(
        "labels that are none", "a row is written to by what another one's label says", "core/exact/kernels.py",
        edit("if 0 <= labels[i] < count:", "if labels[i] < count:"),
        (EXACT + "a_label_that_is_none_reads_and_writes_nothing_else",),
    ),
    Mutant(
        "integers changed after they were measured", "a row function lengthens rows behind their lengths",
        "core/exact/quantised.py",
        edit("if versions(*self.parts) != self._versions:", "if False:"),
        (EXACT + "rows_that_were_changed_in_place_are_refused",
         SUMS + "rows_in_8_bits_whose_integers_were_replaced_are_refused"),
    ),
    Mutant(
        "a basis that moves", "the norms of residuals are those of the basis as it was", "mechanisms/residual/bases.py",
        edit("if versions(*self.tensors) != self._versions:", "if False:"),
        ("privacy/mechanisms/test_bases.py::test_a_basis_that_was_changed_in_place_is_refused",),
    ),
    Mutant(
        "sums beyond 64 bits", "half a million rows wrap around: one row moves the sum by a million clips",
        "core/exact/sums.py",
        edit("if rows * self.largest > 2.0**62:", "if False:"),
        (SUMS + "a_sum_that_64_bits_may_not_hold_is_refused_before_any_row_is_read",),
    ),
    Mutant(
        "lengths under-estimated", "rows in 8 bits are longer than they say", "core/exact/quantised.py",
        edit("squares.double().sqrt_().mul_(1 + 2.0**-50)", "squares.double().sqrt_().mul_(1 - 2.0**-9)"),
        (EXACT + "rows_in_8_bits_are_within_half_a_step_and_their_lengths_are_exact", ONE_ROW),
    ),
    Mutant(
        "scaled norms without what slices leave out", "norms of rows under a scale may lie below the truth",
        "core/exact/sums.py",
        edit("return total.add_(left_out).mul_(", "return total.mul_("),
        (SUMS + "squares_under_a_scale_are_never_under_estimated",),
    ),
    Mutant(
        "sums in floats", "one row moves what the others round to", "core/sum.py",
        edit("return [block.integers(clip, shares) for block, clip in zip(blocks, clips, strict=True)]",
             "whole = [block.integers(clip, shares) for block, clip in zip(blocks, clips, strict=True)]\n"
             "        return [IntegerSum(one.total.float().long(), one.grid, one.largest) for one in whole]"),
        (SUMS + "one_example_moves_a_curators_sum_by_its_own_integers",),
    ),
    Mutant(
        "any form", "a plugin's own subclass says what its norms are", "core/forms/blocks.py",
        edit("elif isinstance(part, Contribution) and is_closed(type(part)):", "elif isinstance(part, Contribution):"),
        (SUMS + "a_form_that_lies_about_its_tensors_is_measured_as_what_it_is", BASES
         + "a_subclass_which_could_give_any_norm_is_refused", "privacy/test_binding.py"),
    ),
    Mutant(
        "rows in any precision", "the bounds on rounding do not hold for float16", "core/forms/rounding.py",
        edit("if kinds not in ({torch.float32}, {torch.float64}):", "if False:"),
        (FORMS + "kinds_of_numbers_whose_rounding_is_not_bounded_are_refused",),
    ),
    Mutant(
        "tensors of any subclass", "one that redefines its norm is not clipped", "core/exact/quantised.py",
        edit("return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)", "return tensor"),
        (SUMS + "a_form_that_lies_about_its_tensors_is_measured_as_what_it_is",),
    ),
    Mutant(
        "clip by the first part", "Opacus' parameters without a gradient sample: other parts are not clipped",
        "core/forms/contributions.py",
        edit("[row_norms(part) for part in self.parts]", "[row_norms(part) for part in self.parts[:1]]"),
        (ONE_ROW, FORMS + "joined_rows_are_clipped_as_one"),
    ),
    Mutant(
        "a basis that is not orthonormal", "residuals are longer than their bound", "mechanisms/residual/bases.py",
        edit("if not self.defect <= DEFECT_LIMIT:", "if False:"),
        (BASES + "a_basis_that_is_not_orthonormal_is_refused",),
    ),
    Mutant(
        "an embedding that can be changed", "what is taken off is not what the norm was measured for",
        "mechanisms/residual/form.py",
        edit("return self._embedding.clone()", "return self._embedding"),
        ("privacy/mechanisms/test_residual_guards.py::test_changing_the_embedding_in_place_unclips_nothing",),
    ),
    Mutant(
        "residuals of a skew basis", "what is not orthonormal lengthens them", "mechanisms/residual/form.py",
        edit("(1 - defect) * embedded.square()", "embedded.square()"),
        (BASES + "rows_along_a_basis_that_is_as_skew_as_allowed_have_upper_bounds",),
    ),
    Mutant(
        "residuals without room for rounding", "three roundings lengthen them beyond the clip",
        "mechanisms/residual/form.py",
        edit("(clip if shares is None else clip * shares) * (1 - 2.0**-30) - rest - grids.reserve(right.lengths)",
             "torch.full((1, 1), clip, dtype=torch.float64)"),
        (BASES + "one_row_moves_each_of_the_two_sums_by_at_most_its_clip", ONE_ROW),
    ),
    Mutant(
        "a unit's dense rows each at the whole clip", "a patient with thirty images moves a sum by thirty clips",
        "core/exact/sums.py",
        edit("else (clip * shares - reserve).clamp_(min=0)", "else clip - reserve"),
        (UNITS + "a_unit_moves_a_sum_by_at_most_the_clip_exactly[dense]",),
    ),
    Mutant(
        "a unit's outer products each at the whole clip", "a patient with thirty images moves a sum by thirty clips",
        "core/exact/sums.py",
        edit("return clips if shares is None else clips * shares", "return clips"),
        (UNITS + "a_unit_moves_a_sum_by_at_most_the_clip_exactly[outer]",
         UNITS + "a_sum_over_units_is_that_of_the_means_of_their_clipped_rows"),
    ),
    Mutant(
        "small rows of a unit added and not averaged", "below the clip each counts whole", "core/exact/sums.py",
        edit("weights = weights if most is None else torch.minimum(weights, most)", "weights = weights"),
        (UNITS + "a_sum_over_units_is_that_of_the_means_of_their_clipped_rows",),
    ),
    Mutant(
        "shares rounded to the nearest", "three thirds are more than one", "core/rows.py",
        edit("np.where(exact, 1 / sizes, np.nextafter(1 / sizes, 0))", "np.where(exact, 1 / sizes, 1 / sizes)"),
        (UNITS + "the_shares_of_a_unit_add_up_to_one_at_most",),
    ),
    Mutant(
        "rows sampled in place of units", "a patient of thirty images is drawn thirty times as often", "core/rows.py",
        edit("return self.units.count if self.units else len(self)", "return len(self)"),
        (UNITS + "units_are_sampled_whole_and_each_with_its_chance",
         UNITS + "choices_over_units_count_each_unit_once"),
    ),
    Mutant(
        "losses of a unit added and not averaged", "thirty images lose thirty times as much",
        "mechanisms/choice/steps.py",
        edit("if shares is not None:  # down", "if False:  # down"),
        (UNITS + "a_unit_loses_at_most_one_by_each_candidate_and_gains_nothing",),
    ),
)  # fmt: skip
