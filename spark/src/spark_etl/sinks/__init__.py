"""Outputs of a pipeline: where its good rows, its refused rows and its aggregates go."""
