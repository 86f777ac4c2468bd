//! Status codes of the V1 contract; numbers are fixed and only ever appended to.

use std::fmt;

macro_rules! statuses {
    ($($variant:ident = $code:literal, $name:literal, $meaning:literal;)*) => {
        /// What every function of the contract answers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum Status {
            $(#[doc = $meaning] $variant = $code,)*
        }

        impl Status {
            /// All statuses in the order of their numbers.
            pub const ALL: &'static [Status] = &[$(Status::$variant,)*];

            /// The contract's name, such as `ERR_PARAM`.
            pub const fn name(self) -> &'static str {
                match self { $(Status::$variant => $name,)* }
            }

            /// One line for people.
            pub const fn meaning(self) -> &'static str {
                match self { $(Status::$variant => $meaning,)* }
            }
        }
    };
}

statuses! {
    Ok = 0, "OK", "success";
    UnknownOp = 1, "ERR_UNKNOWN_OP", "no such op id";
    UnsupportedArch = 2, "ERR_UNSUPPORTED_ARCH", "not a built slot, or the op or wave is not allowed on it";
    BadArg = 3, "ERR_BAD_ARG", "NULL pointer, or a malformed fabric";
    Scratch = 4, "ERR_SCRATCH", "scratch too small, NULL, or not 256-byte aligned";
    NotReady = 5, "ERR_NOT_READY", "the contract exists, the body does not, or its slot is not loaded";
    UnsupportedDtype = 6, "ERR_UNSUPPORTED_DTYPE", "activation dtype that the op does not take";
    Abi = 7, "ERR_ABI", "struct_size or revision mismatch, or a plan that failed";
    Param = 8, "ERR_PARAM", "param count, domain, cross-check, or scratch overflow";
    Tensor = 9, "ERR_TENSOR", "tensor count, dtype, rank, extent, layout, or NULL data";
    UnsupportedFabric = 10, "ERR_UNSUPPORTED_FABRIC", "not a custom all-reduce hop; the engine keeps RCCL";
    CodeObject = 11, "ERR_CODE_OBJECT", "unreadable, not one raw AMDGPU ELF, or rejected by HIP";
    ForeignIsa = 12, "ERR_FOREIGN_ISA", "the ELF's machine is not the slot's, or HSA_OVERRIDE_GFX_VERSION is set";
    NoHip = 13, "ERR_NO_HIP", "no device behind the library: the image was validated, nothing was loaded";
}

impl Status {
    /// The number that C callers see.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The status with this number, if there is one.
    pub fn from_code(code: i32) -> Option<Status> {
        Status::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_the_contracts() {
        let codes: Vec<i32> = Status::ALL.iter().map(|s| s.code()).collect();
        assert_eq!(codes, (0..14).collect::<Vec<_>>());
        assert_eq!(Status::from_code(9).map(Status::name), Some("ERR_TENSOR"));
        assert_eq!(Status::from_code(14), None);
        assert_eq!(Status::from_code(-1), None);
    }
}
