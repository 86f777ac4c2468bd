//! GPU slots: one architecture, one code object each.

use crate::refusal::{ArchFault, Reason, Refusal, ShortText};

/// One architecture for which a code object is built.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// The arch id of the C ABI.
    pub id: i32,
    pub name: &'static str,
    /// EF_AMDGPU_MACH, the low byte of an object's e_flags.
    pub mach: u32,
    /// Whether DOT ops (packed fp16 dot products) exist on it.
    pub dot: bool,
    /// Lanes of a wavefront when caps.wave is 0.
    pub default_wave: i32,
    pub note: &'static str,
}

/// An architecture known by name and refused like any unknown one, with a reason.
#[derive(Debug, PartialEq, Eq)]
pub struct LaterSlot {
    pub name: &'static str,
    pub mach: u32,
    pub reason: &'static str,
}

const fn slot(id: i32, name: &'static str, mach: u32, dot: bool, default_wave: i32, note: &'static str) -> Slot {
    Slot { id, name, mach, dot, default_wave, note }
}

/// All slots; the index is the arch id. The machine numbers are in no order.
pub static SLOTS: [Slot; 12] = [
    slot(0, "gfx1030", 0x36, true, 32, "Radeon PRO V620, the primary target"),
    slot(1, "gfx1100", 0x41, true, 32, ""),
    slot(2, "gfx1101", 0x46, true, 32, ""),
    slot(3, "gfx1102", 0x47, true, 32, ""),
    slot(4, "gfx1200", 0x48, true, 32, ""),
    slot(5, "gfx1151", 0x4a, true, 32, "Strix Halo; portable, not tuned"),
    slot(6, "gfx1031", 0x37, true, 32, "portable, not tuned"),
    slot(7, "gfx1032", 0x38, true, 32, "portable, not tuned"),
    slot(8, "gfx1033", 0x39, true, 32, "Steam Deck; portable, not tuned"),
    slot(9, "gfx1035", 0x3d, true, 32, "portable, not tuned"),
    slot(10, "gfx1036", 0x45, true, 32, "portable, not tuned"),
    slot(11, "gfx900", 0x2c, false, 64, "Vega; never carries a DOT kernel"),
];

/// Architectures that may become slots.
pub static LATER_SLOTS: [LaterSlot; 2] = [
    LaterSlot {
        name: "gfx906",
        mach: 0x2f,
        reason: "Vega20 is a later slot: it is not built under revision 4 and will never carry a DOT kernel",
    },
    LaterSlot {
        name: "gfx1013",
        mach: 0x42,
        reason: "BC-250 (Cyan Skillfish) is a later slot: it is not true RDNA2, so no gfx103x object may be loaded on it, \
                 with or without HSA_OVERRIDE_GFX_VERSION",
    },
];

/// The slot with exactly this name.
///
/// # Errors
/// ERR_UNSUPPORTED_ARCH, saying why, for any other text: unknown, a later slot, empty, or several names in one.
pub fn slot_by_name(name: &str) -> Result<&'static Slot, Refusal> {
    slot_by_bytes(Some(name.as_bytes()))
}

/// The same for the bytes of a C string, `None` standing for NULL.
#[inline]
pub fn slot_by_bytes(name: Option<&[u8]>) -> Result<&'static Slot, Refusal> {
    let found = name.unwrap_or_default();
    match SLOTS.iter().find(|slot| slot.name.as_bytes() == found) {
        Some(slot) => Ok(slot),
        None => Err(no_slot(name)),
    }
}

/// Why a text is no slot.
#[cold]
fn no_slot(name: Option<&[u8]>) -> Refusal {
    let fault = match name {
        None => ArchFault::Null,
        Some(b"") => ArchFault::Empty,
        Some(bytes) if bytes.iter().any(|b| matches!(b, b',' | b' ')) => ArchFault::Several,
        Some(bytes) => match LATER_SLOTS.iter().find(|later| later.name.as_bytes() == bytes) {
            Some(later) => ArchFault::Later(later),
            None => ArchFault::Unknown,
        },
    };
    Refusal::of(Reason::Arch { found: ShortText::new(name.unwrap_or_default()), fault })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn ids_are_indices_and_machines_are_distinct() {
        for (index, slot) in SLOTS.iter().enumerate() {
            assert_eq!(slot.id as usize, index);
            assert_eq!(SLOTS.iter().filter(|other| other.mach == slot.mach).count(), 1);
            assert_eq!(slot_by_name(slot.name).unwrap().id, slot.id);
        }
    }

    #[test]
    fn what_is_no_slot_is_refused_with_its_reason() {
        for (name, word) in [
            ("gfx906", "Vega20"),
            ("gfx1013", "BC-250"),
            ("gfx1030,gfx1100", "one slot"),
            ("gfx1030 ", "one slot"),
            ("", "empty"),
            ("GFX1030", "gfx1030"),
            ("gfx1030:xnack-", "gfx1030"),
        ] {
            let refusal = slot_by_name(name).unwrap_err();
            assert_eq!(refusal.status(), Status::UnsupportedArch, "{name}");
            assert!(refusal.to_string().contains(word), "{name}: {refusal}");
        }
        assert_eq!(slot_by_bytes(None).unwrap_err().status(), Status::UnsupportedArch);
    }
}
