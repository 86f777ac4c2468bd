//! The targets, by name.

use hippihx_kernels::SLOTS;
use hippihx_kernels::code_object::{check_header, inspect};
use hippihx_proto::handoff::{Reply, Request};

/// A target's name, the function, and where its seeds come from.
pub type Target = (&'static str, fn(&[u8]), Seeds);

pub const TARGETS: [Target; 3] = [
    ("object-header", object_header, Seeds::Objects),
    ("object-whole", object_whole, Seeds::Objects),
    ("handoff-frames", handoff_frames, Seeds::Frames),
];

/// Inputs that mutation starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeds {
    /// The built code objects, and small made-up ones.
    Objects,
    Frames,
}

/// Level one of the code-object checks, on every slot.
fn object_header(bytes: &[u8]) {
    for slot in &SLOTS {
        if check_header(bytes, slot).is_ok() {
            assert_eq!(u32::from(bytes[48]), slot.mach, "an image passed whose machine is another");
        }
    }
}

/// Level two: parse whole, then judge for the first slot.
fn object_whole(bytes: &[u8]) {
    if let Ok(object) = inspect(bytes) {
        let kept: usize =
            object.kernels.iter().map(|kernel| kernel.name.len() + kernel.symbol.len() + kernel.args.len() * 8).sum();
        assert!(kept <= 16 * bytes.len() + 1024, "{kept} bytes kept of an image of {}", bytes.len());
        let _ = object.admit(&SLOTS[0]);
    }
}

/// Hand-off frames in both directions; what decodes must encode to the same bytes.
fn handoff_frames(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    let _ = Reply::decode(bytes);
}
