//! The PCIe fabric between two GPUs, and whether the custom all-reduce may use it.

use crate::refusal::{Reason, Refusal};

/// What a caller says of one hop; the fields are the C ABI's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fabric {
    /// UNSET 0, PIX 1, PXB 2, PHB 3.
    pub hop: i32,
    /// UNSET 0, PEX88096 1, PEX8749 2, GENERIC 3.
    pub pcie_switch: i32,
    /// PCIe lanes: 1, 2, 4, 8 or 16.
    pub width: i32,
    /// 1 when no ACS redirect stands in the hop's way.
    pub acs_clear: i32,
    /// 1 when the whole device memory is behind the BAR.
    pub large_bar: i32,
}

/// Hop kinds by number.
pub const HOPS: [&str; 4] = ["UNSET", "PIX", "PXB", "PHB"];
/// Switch kinds by number.
pub const SWITCHES: [&str; 4] = ["UNSET", "PEX88096", "PEX8749", "GENERIC"];
/// Link widths in lanes.
pub const WIDTHS: [i32; 5] = [1, 2, 4, 8, 16];

const PIX: i32 = 1;
const PEX88096: i32 = 1;
const GENERIC: i32 = 3;

/// A verdict's fault: which field, what was found, what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricFault {
    /// ERR_UNSUPPORTED_FABRIC: no fabric was given.
    Missing,
    /// ERR_BAD_ARG: a number outside its list.
    Field { field: &'static str, found: i32, allowed: &'static str },
    /// ERR_BAD_ARG: a PIX hop behind an ACS redirect contradicts itself.
    PixWithoutAcs,
    /// ERR_UNSUPPORTED_FABRIC: well-formed, but not a hop for the custom path.
    Unsupported { fabric: Fabric },
}

/// Judges a fabric for the custom all-reduce.
///
/// # Errors
/// ERR_UNSUPPORTED_FABRIC or ERR_BAD_ARG, as [`FabricFault`] says.
pub fn verdict(fabric: Option<&Fabric>) -> Result<(), Refusal> {
    let refuse = |fault| Err(Refusal::of(Reason::Fabric(fault)));
    let Some(fabric) = fabric else { return refuse(FabricFault::Missing) };
    let fields = [
        ("hop", fabric.hop, (0..=3).contains(&fabric.hop), "0 UNSET, 1 PIX, 2 PXB, 3 PHB"),
        (
            "pcie_switch",
            fabric.pcie_switch,
            (0..=3).contains(&fabric.pcie_switch),
            "0 UNSET, 1 PEX88096, 2 PEX8749, 3 GENERIC",
        ),
        ("width", fabric.width, WIDTHS.contains(&fabric.width), "1, 2, 4, 8, 16"),
        ("acs_clear", fabric.acs_clear, matches!(fabric.acs_clear, 0 | 1), "0, 1"),
        ("large_bar", fabric.large_bar, matches!(fabric.large_bar, 0 | 1), "0, 1"),
    ];
    for (field, found, fits, allowed) in fields {
        if !fits {
            return refuse(FabricFault::Field { field, found, allowed });
        }
    }
    if fabric.hop == PIX && fabric.acs_clear == 0 {
        return refuse(FabricFault::PixWithoutAcs);
    }
    let custom = fabric.hop == PIX
        && matches!(fabric.pcie_switch, PEX88096 | GENERIC)
        && fabric.acs_clear == 1
        && fabric.large_bar == 1;
    if custom { Ok(()) } else { refuse(FabricFault::Unsupported { fabric: *fabric }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    const GOOD: Fabric = Fabric { hop: 1, pcie_switch: 1, width: 16, acs_clear: 1, large_bar: 1 };

    #[test]
    fn only_a_clear_pix_hop_on_a_known_switch_is_custom() {
        assert_eq!(verdict(Some(&GOOD)), Ok(()));
        assert_eq!(verdict(Some(&Fabric { pcie_switch: 3, ..GOOD })), Ok(()));
        for fabric in [
            Fabric { pcie_switch: 2, ..GOOD },
            Fabric { pcie_switch: 0, ..GOOD },
            Fabric { hop: 2, ..GOOD },
            Fabric { hop: 0, acs_clear: 0, ..GOOD },
            Fabric { large_bar: 0, ..GOOD },
        ] {
            assert_eq!(verdict(Some(&fabric)).unwrap_err().status(), Status::UnsupportedFabric, "{fabric:?}");
        }
        assert_eq!(verdict(None).unwrap_err().status(), Status::UnsupportedFabric);
    }

    #[test]
    fn contradictions_and_unknown_numbers_are_bad_arguments() {
        for fabric in [
            Fabric { acs_clear: 0, ..GOOD },
            Fabric { hop: 4, ..GOOD },
            Fabric { hop: -1, ..GOOD },
            Fabric { pcie_switch: 4, ..GOOD },
            Fabric { width: 3, ..GOOD },
            Fabric { width: 0, ..GOOD },
            Fabric { acs_clear: 2, ..GOOD },
            Fabric { large_bar: -1, ..GOOD },
        ] {
            assert_eq!(verdict(Some(&fabric)).unwrap_err().status(), Status::BadArg, "{fabric:?}");
        }
    }
}
