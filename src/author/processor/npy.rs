//! Reads NumPy files: one array, in version 1 or 2 of the format.

use sequor_core::DataType;

/// An array: type, dimensions, and elements in little-endian and row-major order.
pub(super) type NpyArray = (DataType, Vec<u64>, Vec<u8>);

/// Element types by NumPy's names.
const TYPES: [(&str, DataType); 12] = [
    ("|b1", DataType::Bool),
    ("|u1", DataType::Uint8),
    ("<u2", DataType::Uint16),
    ("<u4", DataType::Uint32),
    ("<u8", DataType::Uint64),
    ("|i1", DataType::Int8),
    ("<i2", DataType::Int16),
    ("<i4", DataType::Int32),
    ("<i8", DataType::Int64),
    ("<f2", DataType::Fp16),
    ("<f4", DataType::Fp32),
    ("<f8", DataType::Fp64),
];

/// Parses a file. The error names what is unsupported.
pub(super) fn parse(file: &[u8]) -> Result<NpyArray, String> {
    let foreign = || "it is no file of NumPy".to_owned();
    let rest = file.strip_prefix(b"\x93NUMPY").ok_or_else(foreign)?;
    let (head, data) = match rest {
        [1, _, a, b, rest @ ..] => rest.split_at_checked(usize::from(u16::from_le_bytes([*a, *b]))),
        [2, _, a, b, c, d, rest @ ..] => {
            let len = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).ok();
            len.and_then(|len| rest.split_at_checked(len))
        }
        _ => None,
    }
    .ok_or_else(foreign)?;
    let head = std::str::from_utf8(head).map_err(|_| foreign())?;
    let field = |name: &str| head.split_once(&format!("'{name}':")).map(|(_, rest)| rest.trim_start());
    let descr = field("descr").and_then(|rest| rest.split('\'').nth(1)).ok_or_else(foreign)?;
    let dtype = TYPES.iter().find(|(name, _)| *name == descr).map(|(_, dtype)| *dtype);
    let dtype = dtype.ok_or_else(|| format!("elements of type {descr} are not served"))?;
    if !field("fortran_order").is_some_and(|rest| rest.starts_with("False")) {
        return Err("it is in Fortran's order; save it in C's".to_owned());
    }
    let shape = field("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(foreign)?;
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let shape = dims.map(|dim| dim.parse::<u64>().map_err(|_| foreign())).collect::<Result<Vec<_>, _>>()?;
    let elements = shape.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim)).ok_or_else(foreign)?;
    let size = elements.checked_mul(dtype.size().unwrap_or(1) as u64);
    if size != Some(data.len() as u64) {
        return Err(format!("{} bytes do not fill {shape:?} of {dtype}", data.len()));
    }
    Ok((dtype, shape, data.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(head: &str, data: &[u8]) -> Vec<u8> {
        let len = u16::try_from(head.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00".as_slice(), &len, head.as_bytes(), data].concat()
    }

    #[test]
    fn an_array_has_type_shape_and_elements() {
        let of = |head: &str, data: &[u8]| parse(&file(head, data));
        let head = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }       \n";
        assert_eq!(of(head, b"abcd"), Ok((DataType::Int16, vec![2, 1], b"abcd".to_vec())));
        assert_eq!(of(&head.replace("(2, 1)", "()"), b"ab"), Ok((DataType::Int16, vec![], b"ab".to_vec())));
        assert!(of(head, b"abc").unwrap_err().starts_with("3 bytes do not fill [2, 1]"));
        assert!(of(&head.replace("<i2", ">i2"), b"abcd").unwrap_err().contains(">i2"));
        assert!(of(&head.replace("False", "True"), b"abcd").unwrap_err().contains("Fortran"));
        assert!(parse(b"RIFF").is_err() && parse(b"\x93NUMPY\x01\x00\xff\xff").is_err());
    }
}
