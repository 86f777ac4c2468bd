//! The command line of the hippihx kernel daemon.

fn main() {}
