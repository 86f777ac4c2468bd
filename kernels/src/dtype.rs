//! Element types of tensors and activations.

/// A dtype of the contract; the discriminants are the C ABI's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Dtype {
    Unset = 0,
    Fp16 = 1,
    Bf16 = 2,
    Fp32 = 3,
    I32 = 4,
    I64 = 5,
    U8 = 6,
    I8 = 7,
}

impl Dtype {
    /// All dtypes in the order of their numbers.
    pub const ALL: [Dtype; 8] =
        [Dtype::Unset, Dtype::Fp16, Dtype::Bf16, Dtype::Fp32, Dtype::I32, Dtype::I64, Dtype::U8, Dtype::I8];

    /// The dtype with this number, if there is one.
    pub fn from_code(code: i32) -> Option<Dtype> {
        Dtype::ALL.get(usize::try_from(code).ok()?).copied()
    }

    pub const fn code(self) -> i32 {
        self as i32
    }

    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Unset => "unset",
            Dtype::Fp16 => "fp16",
            Dtype::Bf16 => "bf16",
            Dtype::Fp32 => "fp32",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
        }
    }

    /// Bytes of one element; 0 for `Unset`.
    pub const fn bytes(self) -> u64 {
        match self {
            Dtype::Unset => 0,
            Dtype::U8 | Dtype::I8 => 1,
            Dtype::Fp16 | Dtype::Bf16 => 2,
            Dtype::Fp32 | Dtype::I32 => 4,
            Dtype::I64 => 8,
        }
    }

    /// Whether `caps.dtype` may name it at all; which op takes it is the op's business.
    pub const fn is_activation(self) -> bool {
        matches!(self, Dtype::Unset | Dtype::Fp16 | Dtype::Bf16 | Dtype::Fp32)
    }
}
