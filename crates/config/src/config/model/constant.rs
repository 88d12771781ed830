//! `[input.X] constant = …`: converts a TOML value to the tensor for the graph's input.

use sequor_core::{DataType, Dims, Shape};

use super::settings::Constant;
use super::signature::Port;

/// The value as a tensor of the port's type and shape, or why it cannot be one.
pub(super) fn constant(port: &Port, value: &toml::Value) -> Result<Constant, String> {
    let mut elements = Vec::new();
    flatten(value, &mut elements);
    let is_list = matches!(value, toml::Value::Array(_));
    let shape = shape(&port.dims, is_list.then_some(elements.len())).ok_or_else(|| {
        format!("the model's input is {}, to which {} element(s) do not fit", port.dims, elements.len())
    })?;
    let count = shape.elements().and_then(|n| usize::try_from(n).ok()).ok_or("the model's input is too large")?;
    let mut data = Vec::new();
    for element in &elements {
        bytes(port.dtype, element, &mut data)
            .ok_or_else(|| format!("{element} is no {}, the type of the model's input", port.dtype))?;
    }
    if !is_list {
        data = data.repeat(count);
    }
    Ok(Constant { input: port.name.clone(), dtype: port.dtype, shape, data })
}

/// The bytes of one element of this type; `None` if the value does not fit.
pub(super) fn element(dtype: DataType, value: &toml::Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let whole = value.as_float().filter(|f| f.fract() == 0.0).map(|f| toml::Value::Integer(f as i64));
    let is_float = matches!(dtype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
    let truth = value.as_float().map(|f| toml::Value::Boolean(f != 0.0));
    let value = match dtype {
        DataType::Bool => truth?,
        _ if is_float => value.clone(),
        _ => whole?,
    };
    bytes(dtype, &value, &mut out)?;
    Some(out)
}

/// Flattens nested lists, row by row.
fn flatten<'a>(value: &'a toml::Value, into: &mut Vec<&'a toml::Value>) {
    match value {
        toml::Value::Array(values) => values.iter().for_each(|v| flatten(v, into)),
        single => into.push(single),
    }
}

/// The shape that matches `dims` with `count` elements. It can have at most one open dimension. Without a count, each open dimension is 1.
fn shape(dims: &Dims, count: Option<usize>) -> Option<Shape> {
    let fixed = Shape(dims.0.iter().filter_map(|d| d.fixed()).collect()).elements()?;
    let open = dims.0.iter().filter(|d| d.fixed().is_none()).count();
    let fill = match (count.map(u64::try_from).transpose().ok()?, open) {
        (None, _) => 1,
        (Some(count), 0) if count == fixed => 1,
        (Some(count), 1) if fixed > 0 && count % fixed == 0 => count / fixed,
        _ => return None,
    };
    Some(Shape(dims.0.iter().map(|d| d.fixed().unwrap_or(fill)).collect()))
}

/// Appends one element; `None` if the value is not of this type.
fn bytes(dtype: DataType, value: &toml::Value, into: &mut Vec<u8>) -> Option<()> {
    let int = value.as_integer();
    let float = value.as_float().or_else(|| int.map(|n| n as f64));
    macro_rules! whole {
        ($type:ty) => {
            into.extend(<$type>::try_from(int?).ok()?.to_le_bytes())
        };
    }
    match dtype {
        DataType::Bool => into.push(u8::from(value.as_bool()?)),
        DataType::Uint8 => whole!(u8),
        DataType::Uint16 => whole!(u16),
        DataType::Uint32 => whole!(u32),
        DataType::Uint64 => whole!(u64),
        DataType::Int8 => whole!(i8),
        DataType::Int16 => whole!(i16),
        DataType::Int32 => whole!(i32),
        DataType::Int64 => whole!(i64),
        DataType::Fp16 => into.extend(half::f16::from_f64(float?).to_le_bytes()),
        DataType::Bf16 => into.extend(half::bf16::from_f64(float?).to_le_bytes()),
        DataType::Fp32 => into.extend((float? as f32).to_le_bytes()),
        DataType::Fp64 => into.extend(float?.to_le_bytes()),
        DataType::Bytes => {
            let text = value.as_str()?;
            into.extend(u32::try_from(text.len()).ok()?.to_le_bytes());
            into.extend(text.as_bytes());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dtype: DataType, dims: &[i64], value: &str) -> Result<(Shape, Vec<u8>), String> {
        let table: toml::Table = format!("v = {value}").parse().unwrap();
        let port = Port { name: "x".to_owned(), dtype, dims: Dims::from_wire(dims) };
        constant(&port, &table["v"]).map(|c| (c.shape, c.data))
    }

    #[test]
    fn a_constant_becomes_a_tensor_of_the_type_and_shape_of_its_input() {
        assert_eq!(made(DataType::Int64, &[], "16000"), Ok((Shape::new(&[]), 16000i64.to_le_bytes().to_vec())));
        assert_eq!(made(DataType::Uint8, &[2, 2], "7"), Ok((Shape::new(&[2, 2]), vec![7; 4])));
        assert_eq!(made(DataType::Bool, &[-1], "[true, false]"), Ok((Shape::new(&[2]), vec![1, 0])));
        assert_eq!(made(DataType::Uint8, &[-1, 2], "[[1, 2], [3, 4]]"), Ok((Shape::new(&[2, 2]), vec![1, 2, 3, 4])));
        assert_eq!(made(DataType::Fp32, &[-1], "1"), Ok((Shape::new(&[1]), 1f32.to_le_bytes().to_vec())));
        assert_eq!(made(DataType::Bytes, &[1], "\"ab\"").unwrap().1, [2, 0, 0, 0, b'a', b'b']);
        assert_eq!(made(DataType::Fp16, &[], "1.0").unwrap().1, [0, 0x3c]);
    }

    #[test]
    fn a_constant_of_another_type_or_size_is_refused() {
        assert_eq!(made(DataType::Int8, &[], "300").unwrap_err(), "300 is no INT8, the type of the model's input");
        assert!(made(DataType::Int64, &[], "1.5").is_err());
        assert!(made(DataType::Bytes, &[], "1").is_err());
        assert_eq!(
            made(DataType::Int8, &[3], "[1, 2]").unwrap_err(),
            "the model's input is [3], to which 2 element(s) do not fit"
        );
        assert!(made(DataType::Int8, &[-1, -1], "[1, 2]").is_err());
    }
}
