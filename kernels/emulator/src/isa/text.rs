//! Instructions as llvm-objdump prints them.

use super::decode::Decoded;

pub(crate) fn render(decoded: &Decoded) -> String {
    decoded.row.name.to_owned()
}
