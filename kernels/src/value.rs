//! One param: eight bytes that hold an int64 or a double, as the op's schema says.

use std::fmt;

/// The C ABI's union. Equality is bit for bit, which is what a plan's key needs (NaN included).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct ParamValue(u64);

impl ParamValue {
    pub const fn from_i64(value: i64) -> Self {
        ParamValue(value.cast_unsigned())
    }

    pub const fn from_f64(value: f64) -> Self {
        ParamValue(value.to_bits())
    }

    pub const fn from_bits(bits: u64) -> Self {
        ParamValue(bits)
    }

    pub const fn as_i64(self) -> i64 {
        self.0.cast_signed()
    }

    pub const fn as_f64(self) -> f64 {
        f64::from_bits(self.0)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParamValue({} | {:e})", self.as_i64(), self.as_f64())
    }
}
