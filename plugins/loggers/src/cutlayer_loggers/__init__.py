"""Live curves and results of a run in MLflow and TensorBoard."""
