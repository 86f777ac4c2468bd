//! The 64-byte kernel descriptor.

/// What a wave starts with. The order of the scalar registers is the order of these fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub group_bytes: u32,
    /// Scratch bytes a lane.
    pub private_bytes: u32,
    pub kernarg_bytes: u32,
    /// From the descriptor's own address.
    pub entry_offset: i64,
    pub private_segment_buffer: bool,
    pub dispatch_ptr: bool,
    pub queue_ptr: bool,
    pub kernarg_ptr: bool,
    pub dispatch_id: bool,
    pub flat_scratch_init: bool,
    pub private_segment_size: bool,
    pub wave32: bool,
    pub user_sgprs: u32,
    pub workgroup_id: [bool; 3],
    pub workgroup_info: bool,
    pub private_wave_offset: bool,
    /// 0: x only, 1: x and y, 2: all.
    pub workitem_ids: u32,
    pub vgprs: u32,
    /// As the MODE register holds them: rounding, denormals, DX10_CLAMP (bit 8), IEEE (bit 9).
    pub mode: u32,
}

impl Descriptor {
    pub(crate) const BYTES: usize = 64;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let entry = u64::from(word(16)) | u64::from(word(20)) << 32;
        let (rsrc1, rsrc2) = (word(48), word(52));
        let properties = word(56) & 0xffff;
        let bit = |value: u32, at: u32| value >> at & 1 == 1;
        Self {
            group_bytes: word(0),
            private_bytes: word(4),
            kernarg_bytes: word(8),
            entry_offset: entry as i64,
            private_segment_buffer: bit(properties, 0),
            dispatch_ptr: bit(properties, 1),
            queue_ptr: bit(properties, 2),
            kernarg_ptr: bit(properties, 3),
            dispatch_id: bit(properties, 4),
            flat_scratch_init: bit(properties, 5),
            private_segment_size: bit(properties, 6),
            wave32: bit(properties, 10),
            user_sgprs: rsrc2 >> 1 & 0x1f,
            workgroup_id: [bit(rsrc2, 7), bit(rsrc2, 8), bit(rsrc2, 9)],
            workgroup_info: bit(rsrc2, 10),
            private_wave_offset: bit(rsrc2, 0),
            workitem_ids: rsrc2 >> 11 & 3,
            // Granules of 8 in wave32.
            vgprs: ((rsrc1 & 0x3f) + 1) * 8,
            mode: (rsrc1 >> 12 & 0xff) | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_abi_puts_them() {
        let mut bytes = [0; 64];
        bytes[0..4].copy_from_slice(&1536_u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&(-256_i64).to_le_bytes());
        // VGPR granule 4, fp32 and fp16/64 denormals on, DX10_CLAMP, IEEE, WGP mode.
        bytes[48..52].copy_from_slice(&(4_u32 | 0xf << 16 | 1 << 21 | 1 << 23 | 1 << 29).to_le_bytes());
        // Six user SGPRs, workgroup ids x and z, work-item ids x and y.
        bytes[52..56].copy_from_slice(&(6_u32 << 1 | 1 << 7 | 1 << 9 | 1 << 11).to_le_bytes());
        bytes[56..58].copy_from_slice(&(1_u16 << 3 | 1 << 10).to_le_bytes());
        let descriptor = Descriptor::parse(&bytes);
        assert_eq!(descriptor.group_bytes, 1536);
        assert_eq!(descriptor.entry_offset, -256);
        assert_eq!(descriptor.vgprs, 40);
        assert_eq!(descriptor.mode, 0x3f0);
        assert_eq!(descriptor.user_sgprs, 6);
        assert_eq!(descriptor.workgroup_id, [true, false, true]);
        assert_eq!(descriptor.workitem_ids, 1);
        assert!(descriptor.kernarg_ptr && descriptor.wave32 && !descriptor.private_segment_buffer);
    }
}
