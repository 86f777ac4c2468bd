//! Which field values an encoding refuses.

use super::decode::Decoded;

/// Whether every field holds something that the instruction allows.
pub(crate) fn check(_decoded: &Decoded) -> bool {
    true
}
