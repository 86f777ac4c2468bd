//! Benchmarks that compare.

fn main() {}
