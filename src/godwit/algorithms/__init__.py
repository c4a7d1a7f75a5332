"""The algorithms, a stem each: the declaration, and drivers where the shared solvers do not fit."""
