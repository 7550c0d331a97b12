"""Training of the quality estimator."""
