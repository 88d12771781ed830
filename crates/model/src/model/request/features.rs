//! The features of a request for schedulers: values from its parameters, its headers or an input.

use sequor_core::{DataType, RequestMeta};

use crate::config::model::settings::{Feature, FeatureFrom, FeatureKind, ModelSettings};
use crate::scheduling::key_interner::KeyInterner;
use crate::tensor::{Tensor, rows};

use super::message::Parameter;

/// A value as it was sent.
#[derive(Debug, Clone, PartialEq)]
enum SentValue {
    Number(f64),
    Text(String),
}

/// The sources of feature values.
#[derive(Clone, Copy)]
pub(in crate::model) struct FeatureSources<'a> {
    pub(in crate::model) parameters: &'a [(String, Parameter)],
    pub(in crate::model) headers: &'a [(String, String)],
    pub(in crate::model) inputs: &'a [Option<Tensor>],
}

/// Fills in the feature values. If a request has no value, or one of the wrong type, the feature gets its default.
pub(in crate::model) fn fill(
    meta: &mut RequestMeta,
    settings: &ModelSettings,
    sources: FeatureSources<'_>,
    texts: &KeyInterner,
) {
    let (mut numbers, mut keys) = (meta.numbers.iter_mut(), meta.keys.iter_mut());
    for feature in &settings.features {
        let value = value(feature, sources);
        match &feature.kind {
            FeatureKind::Number { default } => {
                let number = match value {
                    Some(SentValue::Number(n)) => Some(n),
                    Some(SentValue::Text(text)) => text.trim().parse().ok(),
                    None => None,
                };
                if let Some(place) = numbers.next() {
                    *place = number.filter(|n| n.is_finite()).unwrap_or(*default);
                }
            }
            FeatureKind::Key { default } => {
                let text = match value {
                    Some(SentValue::Text(text)) => Some(text),
                    Some(SentValue::Number(n)) => Some(n.to_string()),
                    None => default.clone(),
                };
                if let Some(place) = keys.next() {
                    *place = text.map_or(0, |text| texts.key(&text));
                }
            }
        }
    }
}

fn value(feature: &Feature, FeatureSources { parameters, headers, inputs }: FeatureSources<'_>) -> Option<SentValue> {
    match &feature.from {
        FeatureFrom::Parameter(key) => {
            let (_, value) = parameters.iter().find(|(name, _)| name == key)?;
            Some(match value {
                Parameter::Bool(is) => SentValue::Number(f64::from(u8::from(*is))),
                Parameter::Int(n) => SentValue::Number(*n as f64),
                Parameter::Uint(n) => SentValue::Number(*n as f64),
                Parameter::Double(n) => SentValue::Number(*n),
                Parameter::Text(text) => SentValue::Text(text.clone()),
            })
        }
        FeatureFrom::Header(key) => {
            let (_, value) = headers.iter().find(|(name, _)| name == key)?;
            Some(SentValue::Text(value.clone()))
        }
        FeatureFrom::Input(at) => first(inputs.get(*at)?.as_ref()?),
    }
}

/// The first element of a tensor.
fn first(tensor: &Tensor) -> Option<SentValue> {
    let data = &tensor.data;
    macro_rules! number {
        ($($dtype:ident $type:ty),*) => {
            match tensor.dtype {
                DataType::Bytes => {
                    let text = rows::BytesElements(data).next()?;
                    SentValue::Text(std::str::from_utf8(text).ok()?.to_owned())
                }
                DataType::Bool => SentValue::Number(f64::from(*data.first()?)),
                $(DataType::$dtype => {
                    let bytes = data.get(..size_of::<$type>())?.try_into().ok()?;
                    SentValue::Number(<$type>::from_le_bytes(bytes).to_f64())
                })*
            }
        };
    }
    Some(number!(
        Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64, Int8 i8, Int16 i16, Int32 i32, Int64 i64, Fp16 half::f16, Bf16 half::bf16,
        Fp32 f32, Fp64 f64
    ))
}

/// Converts a number to the type that policies see.
trait ToF64 {
    fn to_f64(self) -> f64;
}

macro_rules! to_f64 {
    ($($type:ty),*) => { $(
        impl ToF64 for $type {
            #[allow(clippy::cast_lossless, reason = "of some types it is none")]
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )* };
}

to_f64!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sequor_core::Shape;

    use super::*;

    fn tensor(dtype: DataType, data: &[u8]) -> Tensor {
        Tensor { dtype, shape: Shape::new(&[1]), data: Bytes::copy_from_slice(data) }
    }

    #[test]
    fn the_first_element_is_read_for_every_data_type() {
        let number = |dtype, data: &[u8]| first(&tensor(dtype, data));
        assert_eq!(number(DataType::Int32, &(-7i32).to_le_bytes()), Some(SentValue::Number(-7.0)));
        assert_eq!(number(DataType::Fp16, &half::f16::from_f32(1.5).to_le_bytes()), Some(SentValue::Number(1.5)));
        assert_eq!(number(DataType::Bool, &[1]), Some(SentValue::Number(1.0)));
        assert_eq!(number(DataType::Uint64, &[1, 0]), None, "too short");
        assert_eq!(number(DataType::Bytes, b"\x04\0\0\0gold"), Some(SentValue::Text("gold".to_owned())));
        assert_eq!(number(DataType::Bytes, b"\x01\0\0\0\xff"), None, "no text");
    }
}
