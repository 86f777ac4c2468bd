//! A libamdhip64.so over shared memory and CPU threads, for tests.
