//! Codes of element types in the plug-in interface: the table of `wit/0.1.0/tensors.wit`.

use sequor_core::DataType;

/// The types in the order of their codes. The first code is 1.
const TABLE: [DataType; 14] = [
    DataType::Bool,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Fp16,
    DataType::Fp32,
    DataType::Fp64,
    DataType::Bytes,
    DataType::Bf16,
];

/// The code of a type; 0 if the interface does not have it.
pub fn code_of(dtype: DataType) -> u32 {
    (1..).zip(TABLE).find(|(_, known)| *known == dtype).map_or(0, |(code, _)| code)
}

/// The type of a code.
pub fn dtype_of(code: u32) -> Option<DataType> {
    TABLE.get(usize::try_from(code).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_code_of_the_contract() {
        for dtype in DataType::ALL {
            assert_eq!(dtype_of(code_of(dtype)), Some(dtype));
        }
        let codes = [DataType::Bool, DataType::Int8, DataType::Fp32, DataType::Bytes, DataType::Bf16].map(code_of);
        assert_eq!(codes, [1, 6, 11, 13, 14]);
        assert_eq!((dtype_of(0), dtype_of(15)), (None, None));
        let wit = include_str!("../../../../wit/0.1.0/tensors.wit");
        for dtype in DataType::ALL {
            assert!(wit.contains(&format!("`{dtype}`")), "{dtype}");
        }
    }
}
