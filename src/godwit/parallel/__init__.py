"""Threads, atomics and cached compilation: what compiled CPU code of every layer rests on."""
