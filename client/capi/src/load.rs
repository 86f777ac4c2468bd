//! `hippihx_v1_load`, `_load_image` and `_loaded`.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use hippihx_kernels::code_object::check_header;
use hippihx_kernels::slot::slot_by_bytes;
use hippihx_kernels::{Reason, Refusal, Slot, Status};

use crate::guard::status;
use crate::last_error::Failure;

/// More than any code object; a special file that never ends must not fill the memory.
const MAX_BYTES: u64 = 1 << 30;

/// Validates a code object file for a slot. Without a device behind the library a valid one is ERR_NO_HIP.
///
/// # Safety
/// `arch` and `path` are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hippihx_v1_load(arch: *const c_char, path: *const c_char) -> c_int {
    status(|| {
        // SAFETY: NULL or a C string, as the caller promises.
        let slot = unsafe { slot(arch) }?;
        check_override()?;
        if path.is_null() {
            return Err(Refusal::of(Reason::Null { what: "path" }).into());
        }
        // SAFETY: not NULL, so a C string as the caller promises.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        let mut image = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut image));
        if let Err(error) = read {
            let text = format!("cannot read {}: {error}", path.display());
            return Err(Failure::Other { status: Status::CodeObject, text });
        }
        validate(&image, slot)
    })
}

/// The same for an image in memory.
///
/// # Safety
/// `arch` is NULL or a C string; `image` is NULL or `nbytes` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hippihx_v1_load_image(arch: *const c_char, image: *const c_void, nbytes: usize) -> c_int {
    status(|| {
        // SAFETY: NULL or a C string, as the caller promises.
        let slot = unsafe { slot(arch) }?;
        check_override()?;
        if image.is_null() {
            return Err(Refusal::of(Reason::Null { what: "image" }).into());
        }
        // Only the header is looked at; a length that no memory has must not become a slice.
        let looked_at = nbytes.min(64);
        // SAFETY: not NULL, and at least this many readable bytes as the caller promises.
        validate(unsafe { std::slice::from_raw_parts(image.cast(), looked_at) }, slot)
    })
}

/// 1 when the slot has a loaded code object: never in this library, which has no device behind it.
#[unsafe(no_mangle)]
pub extern "C" fn hippihx_v1_loaded(arch: *const c_char) -> c_int {
    let _whatever_it_names = arch;
    0
}

/// # Safety
/// `arch` is NULL or a C string.
unsafe fn slot(arch: *const c_char) -> Result<&'static Slot, Failure> {
    // SAFETY: not NULL here, so a C string as the caller promises.
    let bytes = if arch.is_null() { None } else { Some(unsafe { CStr::from_ptr(arch) }.to_bytes()) };
    Ok(slot_by_bytes(bytes)?)
}

fn check_override() -> Result<(), Failure> {
    match std::env::var_os("HSA_OVERRIDE_GFX_VERSION") {
        Some(found) if !found.is_empty() => {
            let text = format!(
                "HSA_OVERRIDE_GFX_VERSION is set ({}); unset it: it makes the runtime run foreign code",
                found.display()
            );
            Err(Failure::Other { status: Status::ForeignIsa, text })
        }
        _ => Ok(()),
    }
}

fn validate(image: &[u8], slot: &'static Slot) -> Result<(), Failure> {
    check_header(image, slot)?;
    let text =
        format!("the image is good for slot {}, but no device is behind this library: nothing was loaded", slot.name);
    Err(Failure::Other { status: Status::NoHip, text })
}
