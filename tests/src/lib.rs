//! What needs more than one crate: end-to-end, faults, conformance.
