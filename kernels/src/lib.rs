//! The op contract as one table, and the pure arithmetic on it.
