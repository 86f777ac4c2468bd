//! The NT_AMDGPU_METADATA note: a MessagePack map.

use rmpv::Value;

use super::LoadError;

/// Arguments that the runtime, not the caller, fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HiddenKind {
    BlockCount(usize),
    GroupSize(usize),
    Remainder(usize),
    GlobalOffset,
    GridDims,
    /// Anything else, which stays zero.
    Zero,
}

/// What the note says about one kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelMetadata {
    pub name: String,
    pub symbol: String,
    pub kernarg_bytes: u64,
    pub max_flat_workgroup: Option<u64>,
    /// Offset, size and kind.
    pub hidden: Vec<(u64, u64, HiddenKind)>,
}

fn get<'v>(map: &'v Value, key: &str) -> Option<&'v Value> {
    map.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v)
}

pub(crate) fn parse(note: &[u8]) -> Result<Vec<KernelMetadata>, LoadError> {
    let bad = |what: &str| LoadError::Metadata(what.to_owned());
    let root = rmpv::decode::read_value(&mut &note[..]).map_err(|e| LoadError::Metadata(e.to_string()))?;
    let kernels = get(&root, "amdhsa.kernels").and_then(Value::as_array).ok_or_else(|| bad("no amdhsa.kernels"))?;
    kernels
        .iter()
        .map(|kernel| parse_kernel(kernel).ok_or_else(|| bad("a kernel without name, symbol or sizes")))
        .collect()
}

fn parse_kernel(kernel: &Value) -> Option<KernelMetadata> {
    let number = |map: &Value, key: &str| get(map, key).and_then(Value::as_u64);
    let mut hidden = Vec::new();
    for arg in get(kernel, ".args").and_then(Value::as_array).into_iter().flatten() {
        let kind = get(arg, ".value_kind").and_then(Value::as_str).unwrap_or_default();
        let Some(rest) = kind.strip_prefix("hidden_") else { continue };
        let axis = match rest.chars().last() {
            Some('y') => 1,
            Some('z') => 2,
            _ => 0,
        };
        let kind = match rest {
            "block_count_x" | "block_count_y" | "block_count_z" => HiddenKind::BlockCount(axis),
            "group_size_x" | "group_size_y" | "group_size_z" => HiddenKind::GroupSize(axis),
            "remainder_x" | "remainder_y" | "remainder_z" => HiddenKind::Remainder(axis),
            "global_offset_x" | "global_offset_y" | "global_offset_z" => HiddenKind::GlobalOffset,
            "grid_dims" => HiddenKind::GridDims,
            _ => HiddenKind::Zero,
        };
        hidden.push((number(arg, ".offset")?, number(arg, ".size")?, kind));
    }
    Some(KernelMetadata {
        name: get(kernel, ".name")?.as_str()?.to_owned(),
        symbol: get(kernel, ".symbol")?.as_str()?.to_owned(),
        kernarg_bytes: number(kernel, ".kernarg_segment_size")?,
        max_flat_workgroup: number(kernel, ".max_flat_workgroup_size"),
        hidden,
    })
}
