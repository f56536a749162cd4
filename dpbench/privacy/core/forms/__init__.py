"""The forms of one example's contribution to a noisy sum, and how each form is measured, clipped and summed."""
