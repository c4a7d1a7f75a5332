"""What both engines stand on: devices, compilation, memory, statistics of runs."""
