"""The path of a private sum, from the plan to the noisy answer and its epsilon."""
