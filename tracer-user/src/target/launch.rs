//! Starts a program and holds it until probes are in place.
