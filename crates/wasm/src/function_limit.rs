//! Limits the functions of a component before it is compiled. The time and the memory that the compiler needs grow faster than the size of a
//! function: one function of 690 KB took 19 s and 900 MB.

use wasmparser::{Parser, Payload};

use super::component_error::ComponentError;

/// Maximum bytes of a function's code. The interpreter of Python has the largest function of all known components: 427 KB.
pub(crate) const LARGEST: usize = 512 << 10;

/// Checks every function of every module in a component.
pub(crate) fn check(file: &str, bytes: &[u8]) -> Result<(), ComponentError> {
    let damaged =
        |e: wasmparser::BinaryReaderError| ComponentError::Damaged { file: file.to_owned(), what: e.to_string() };
    let mut number = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::CodeSectionEntry(body) = payload.map_err(damaged)? else { continue };
        let size = body.range().len();
        if size > LARGEST {
            return Err(ComponentError::LargeFunction { file: file.to_owned(), number, size, most: LARGEST });
        }
        number += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component with one function that does this often the same.
    fn component(times: usize) -> Vec<u8> {
        let body = "i32.const 7 drop ".repeat(times);
        wat::parse_str(format!("(component (core module (func) (func {body})))")).unwrap()
    }

    #[test]
    fn a_component_with_a_large_function_is_refused() {
        // An instruction pair has three bytes.
        let small = component(LARGEST / 3 - 10);
        assert_eq!(check("x.wasm", &small), Ok(()));
        let large = component((1 << 20) / 3);
        let refused = check("x.wasm", &large).unwrap_err();
        assert!(
            matches!(refused, ComponentError::LargeFunction { number: 1, size, .. } if size > 1_000_000),
            "{refused}"
        );
        let text = refused.to_string();
        assert!(text.starts_with("x.wasm: its function 1 has 1048") && text.contains("524288"), "{text}");
        let inner = "(component (component (core module (func ".to_owned() + &"nop ".repeat(LARGEST + 1) + "))))";
        assert!(check("x.wasm", &wat::parse_str(inner).unwrap()).is_err(), "modules of inner components count too");
    }
}
