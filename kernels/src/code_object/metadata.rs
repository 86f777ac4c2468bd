//! Level two, the metadata note: MessagePack, read in one pass with nothing kept but what is asked for.
//!
//! A tree of values would be built before anything could be checked, at many times the note's size; this reads keys as they
//! come and skips the rest without recursion.

use rmp::Marker;
use rmp::decode::{self, RmpRead};

use super::{Kernel, KernelArg, ObjectError};

/// What the note says.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub target: String,
    pub version: (u64, u64),
    pub kernels: Vec<Kernel>,
}

pub(super) fn parse(note: &[u8]) -> Result<Metadata, ObjectError> {
    let mut reader = Reader { rest: note };
    let mut metadata = Metadata::default();
    let mut seen = [false; 2];
    reader.map(|reader, key| {
        match key {
            b"amdhsa.target" => (metadata.target, seen[0]) = (reader.text()?, true),
            b"amdhsa.version" => {
                let mut parts = Vec::new();
                reader.array(|reader| {
                    let part = reader.unsigned()?;
                    if parts.len() < 2 {
                        parts.push(part);
                    }
                    Ok(())
                })?;
                let [major, minor] = parts[..] else { return Err(wrong("amdhsa.version has no two numbers")) };
                (metadata.version, seen[1]) = ((major, minor), true);
            }
            b"amdhsa.kernels" => reader.array(|reader| {
                metadata.kernels.push(kernel(reader)?);
                Ok(())
            })?,
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    match seen {
        [false, _] => Err(wrong("amdhsa.target is missing")),
        [_, false] => Err(wrong("amdhsa.version is missing")),
        _ => Ok(metadata),
    }
}

fn kernel(reader: &mut Reader<'_>) -> Result<Kernel, ObjectError> {
    let mut kernel = Kernel::default();
    reader.map(|reader, key| {
        let number = match key {
            b".name" => return reader.text().map(|text| kernel.name = text),
            b".symbol" => return reader.text().map(|text| kernel.symbol = text),
            b".args" => {
                return reader.array(|reader| {
                    kernel.args.push(arg(reader)?);
                    Ok(())
                });
            }
            b".kernarg_segment_size" => &mut kernel.kernarg_bytes,
            b".group_segment_fixed_size" => &mut kernel.static_lds_bytes,
            b".private_segment_fixed_size" => &mut kernel.private_bytes,
            b".wavefront_size" => &mut kernel.wavefront_size,
            b".max_flat_workgroup_size" => &mut kernel.max_workgroup,
            b".vgpr_count" => &mut kernel.vgprs,
            b".sgpr_count" => &mut kernel.sgprs,
            b".vgpr_spill_count" => &mut kernel.vgpr_spills,
            b".sgpr_spill_count" => &mut kernel.sgpr_spills,
            _ => return reader.skip(),
        };
        *number = reader.unsigned()?;
        Ok(())
    })?;
    if kernel.name.is_empty() || kernel.symbol.is_empty() {
        return Err(wrong("a kernel has no .name or no .symbol"));
    }
    Ok(kernel)
}

fn arg(reader: &mut Reader<'_>) -> Result<KernelArg, ObjectError> {
    let mut arg = KernelArg::default();
    reader.map(|reader, key| {
        match key {
            b".offset" => arg.offset = reader.unsigned()?,
            b".size" => arg.size = reader.unsigned()?,
            b".value_kind" => arg.value_kind = reader.text()?,
            _ => reader.skip()?,
        }
        Ok(())
    })?;
    Ok(arg)
}

/// The unread part of the note.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn map(&mut self, mut each: impl FnMut(&mut Self, &'a [u8]) -> Result<(), ObjectError>) -> Result<(), ObjectError> {
        let entries =
            decode::read_map_len(&mut self.rest).map_err(|error| wrong(format!("a map is expected: {error}")))?;
        for _ in 0..entries {
            let key = self.bytes()?;
            each(self, key)?;
        }
        Ok(())
    }

    fn array(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), ObjectError>) -> Result<(), ObjectError> {
        let entries =
            decode::read_array_len(&mut self.rest).map_err(|error| wrong(format!("an array is expected: {error}")))?;
        for _ in 0..entries {
            each(self)?;
        }
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, ObjectError> {
        decode::read_int(&mut self.rest).map_err(|error| wrong(format!("an unsigned number is expected: {error}")))
    }

    fn bytes(&mut self) -> Result<&'a [u8], ObjectError> {
        let length =
            decode::read_str_len(&mut self.rest).map_err(|error| wrong(format!("a text is expected: {error}")))?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Result<String, ObjectError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| wrong("a text is not UTF-8"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ObjectError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| wrong("it ends inside a value"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Passes over one value, however deep: every value still owed is a count, not a stack frame.
    fn skip(&mut self) -> Result<(), ObjectError> {
        let mut owed: u64 = 1;
        while owed > 0 {
            owed -= 1;
            let marker = decode::read_marker(&mut self.rest).map_err(|_| wrong("it ends inside a value"))?;
            let (length, values): (u64, u64) = match marker {
                Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (0, 0),
                Marker::U8 | Marker::I8 => (1, 0),
                Marker::U16 | Marker::I16 | Marker::FixExt1 => (2, 0),
                Marker::FixExt2 => (3, 0),
                Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
                Marker::FixExt4 => (5, 0),
                Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
                Marker::FixExt8 => (9, 0),
                Marker::FixExt16 => (17, 0),
                Marker::FixStr(length) => (u64::from(length), 0),
                Marker::Str8 | Marker::Bin8 => (u64::from(self.length8()?), 0),
                Marker::Str16 | Marker::Bin16 => (u64::from(self.length16()?), 0),
                Marker::Str32 | Marker::Bin32 => (u64::from(self.length32()?), 0),
                Marker::Ext8 => (u64::from(self.length8()?) + 1, 0),
                Marker::Ext16 => (u64::from(self.length16()?) + 1, 0),
                Marker::Ext32 => (u64::from(self.length32()?) + 1, 0),
                Marker::FixArray(values) => (0, u64::from(values)),
                Marker::Array16 => (0, u64::from(self.length16()?)),
                Marker::Array32 => (0, u64::from(self.length32()?)),
                Marker::FixMap(entries) => (0, 2 * u64::from(entries)),
                Marker::Map16 => (0, 2 * u64::from(self.length16()?)),
                Marker::Map32 => (0, 2 * u64::from(self.length32()?)),
                Marker::Reserved => return Err(wrong("it holds a reserved marker")),
            };
            self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            // More values than bytes cannot all be there; saying so now keeps the walk as short as the note.
            owed = owed.saturating_add(values);
            if owed > self.rest.len() as u64 {
                return Err(wrong("it ends inside a value"));
            }
        }
        Ok(())
    }

    fn length8(&mut self) -> Result<u8, ObjectError> {
        self.rest.read_data_u8().map_err(|_| wrong("it ends inside a length"))
    }

    fn length16(&mut self) -> Result<u16, ObjectError> {
        self.rest.read_data_u16().map_err(|_| wrong("it ends inside a length"))
    }

    fn length32(&mut self) -> Result<u32, ObjectError> {
        self.rest.read_data_u32().map_err(|_| wrong("it ends inside a length"))
    }
}

fn wrong(what: impl Into<String>) -> ObjectError {
    ObjectError::Metadata(what.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(note in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = parse(&note);
        }

        #[test]
        fn skipping_ends_exactly_behind_one_value(depth in 0_usize..2000, tail in any::<[u8; 4]>()) {
            // [[[…[nil]…]]], then other bytes.
            let mut bytes = vec![0x91; depth];
            bytes.push(0xc0);
            bytes.extend_from_slice(&tail);
            let mut reader = Reader { rest: &bytes };
            prop_assert!(reader.skip().is_ok());
            prop_assert_eq!(reader.rest, tail);
        }
    }

    #[test]
    fn a_claim_of_four_billion_values_is_refused_at_once() {
        for marker in [0xdd, 0xdf] {
            let mut reader = Reader { rest: &[marker, 0xff, 0xff, 0xff, 0xff, 0xc0] };
            assert!(reader.skip().is_err());
        }
        // amdhsa.kernels with 2^32 - 1 entries and none there.
        let mut note = vec![0x81, 0xae];
        note.extend_from_slice(b"amdhsa.kernels");
        note.extend_from_slice(&[0xdd, 0xff, 0xff, 0xff, 0xff]);
        assert!(parse(&note).is_err());
    }
}
