"""Who follows a run: progress, live figures, TensorBoard, traces."""
