"""What is run for a claim: trainings, gradients looked at, times."""
