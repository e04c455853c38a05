"""What the cost models say to a user: calibration, the choice of an algorithm, `explain`."""
