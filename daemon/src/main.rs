//! hippihxd: the daemon.

fn main() {}
