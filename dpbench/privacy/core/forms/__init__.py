"""What one example may contribute to a noisy sum, and how each form is measured, clipped and summed."""
