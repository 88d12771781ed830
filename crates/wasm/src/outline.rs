//! A component's imports and exports, read from its outermost sections before it is compiled. Compilation shows whether all of it is valid.

use wasmparser::{
    Chunk, ComponentAlias, ComponentExternalKind, ComponentOuterAliasKind, ComponentType, ComponentTypeRef,
    InstanceTypeDeclaration, Parser, Payload,
};

/// An imported interface, and the names in it. `None`: the import is not an interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) holds: Option<Vec<String>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) imports: Vec<Interface>,
    pub(crate) exports: Vec<String>,
}

impl Outline {
    /// Reads an outline. An error is the fault of the file.
    pub(crate) fn read(mut bytes: &[u8]) -> Result<Outline, String> {
        let cut = || "it is cut short".to_owned();
        let (mut outline, mut types, mut parser) = (Outline::default(), Vec::new(), Parser::new(0));
        loop {
            let Chunk::Parsed { consumed, payload } = parser.parse(bytes, true).map_err(|e| e.to_string())? else {
                return Ok(outline);
            };
            bytes = bytes.get(consumed..).ok_or_else(cut)?;
            match payload {
                Payload::End(_) => return Ok(outline),
                // The content of inner modules is most of the file, and is not needed yet.
                Payload::ModuleSection { unchecked_range, .. } | Payload::ComponentSection { unchecked_range, .. } => {
                    bytes = bytes.get(unchecked_range.len()..).ok_or_else(cut)?;
                }
                payload => outline.note(payload, &mut types).map_err(|e| e.to_string())?,
            }
        }
    }

    /// Records one payload. `types`: for each type so far the names in an instance of it, if it is a type of instances.
    fn note(&mut self, payload: Payload<'_>, types: &mut Vec<Option<Vec<String>>>) -> wasmparser::Result<()> {
        match payload {
            Payload::ComponentTypeSection(section) => {
                for ty in section {
                    types.push(holds(&ty?));
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    let is_type = matches!(
                        alias?,
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Type, .. }
                            | ComponentAlias::Outer { kind: ComponentOuterAliasKind::Type, .. }
                    );
                    types.extend(is_type.then_some(None));
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    let holds = match import.ty {
                        ComponentTypeRef::Instance(of) => types.get(of as usize).cloned().flatten(),
                        _ => None,
                    };
                    types.extend(matches!(import.ty, ComponentTypeRef::Type(_)).then_some(None));
                    self.imports.push(Interface { name: import.name.name.to_owned(), holds });
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    types.extend((export.kind == ComponentExternalKind::Type).then_some(None));
                    self.exports.push(export.name.name.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn holds(ty: &ComponentType<'_>) -> Option<Vec<String>> {
    let ComponentType::Instance(declared) = ty else { return None };
    let name = |one: &InstanceTypeDeclaration<'_>| match one {
        InstanceTypeDeclaration::Export { name, .. } => Some(name.name.to_owned()),
        _ => None,
    };
    Some(declared.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_lists_the_imports_and_exports_of_a_component() {
        let text = r#"(component
            (type $first (func))
            (import "a:b/types@0.1.0" (instance $types (export "t" (type (sub resource)))))
            (alias export $types "t" (type $t))
            (core module (func (result i32)))
            (component (import "inner" (func)))
            (import "a:b/c@0.1.0" (instance (export "now" (func)) (export "wait" (func))))
            (import "bare" (func))
            (instance $i)
            (export "a:b/d@0.1.0" (instance $i)))"#;
        let read = Outline::read(&wat::parse_str(text).unwrap()).unwrap();
        let import = |name: &str, holds: Option<&[&str]>| Interface {
            name: name.to_owned(),
            holds: holds.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
        };
        let imports = vec![
            import("a:b/types@0.1.0", Some(&["t"])),
            import("a:b/c@0.1.0", Some(&["now", "wait"])),
            import("bare", None),
        ];
        assert_eq!(read, Outline { imports, exports: vec!["a:b/d@0.1.0".to_owned()] });
    }

    #[test]
    fn a_truncated_component_gives_an_error_or_a_partial_outline() {
        let module = "(core module (func (export \"f\") (result i32) i32.const 7))".repeat(8);
        let whole =
            wat::parse_str(format!("(component {module} (import \"a:b/c@0.1.0\" (instance (export \"now\" (func)))))"))
                .unwrap();
        for end in (8..whole.len()).step_by(97) {
            let _ = Outline::read(&whole[..end]);
        }
        assert!(Outline::read(&whole[..whole.len() / 2]).is_err());
    }
}
