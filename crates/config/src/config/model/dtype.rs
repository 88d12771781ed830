//! Converts element types between the configuration's enum and the core.

use sequor_core::DataType;
use sequor_proto as proto;

/// `None` for `TYPE_INVALID` and for unknown numbers.
pub(super) fn from_proto(number: i32) -> Option<DataType> {
    let name = proto::DataType::try_from(number).ok()?.as_str_name();
    DataType::ALL.into_iter().find(|t| t.config_name() == name)
}

pub(super) fn to_proto(dtype: DataType) -> i32 {
    proto::DataType::from_str_name(dtype.config_name()).map_or(0, Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_type_round_trips_through_the_configuration_enum() {
        for dtype in DataType::ALL {
            assert_eq!(from_proto(to_proto(dtype)), Some(dtype));
        }
        assert_eq!((from_proto(0), from_proto(99), to_proto(DataType::Fp32)), (None, None, 11));
    }
}
