"""Step programs: operators on frontiers, as multi-GPU Gunrock has them, on CPUs and GPUs."""
