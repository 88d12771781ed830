//! Writes the code between the contract in `wit/` and a guest, for Rust and for C; or, with `--check`, says whether what is checked in is it.
//! It is checked in so that a guest needs neither a generator nor the macros of one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use wit_bindgen_core::{Files, WorldGenerator, wit_parser::Resolve};
use wit_bindgen_rust::WithOption;

/// A world that the kit for Rust knows: its name, the file of the generated code, the module that it is, and the one whose imports it shares.
type RustWorld = (&'static str, &'static str, &'static str, Option<&'static str>);

/// All of them.
const WORLDS: [RustWorld; 3] = [
    (SCHEDULER, "sdk/src/bindings.rs", "sequor_plugin::bindings", None),
    ("processor-plugin", "sdk/src/processor/bindings.rs", "sequor_plugin::processor::bindings", None),
    (
        "state-initializer-plugin",
        "sdk/src/initializer/bindings.rs",
        "sequor_plugin::initializer::bindings",
        Some("crate::processor::bindings::sequor::plugin"),
    ),
];
/// Interfaces of the package that worlds import.
const IMPORTS: [&str; 5] = ["types", "host", "identity", "tensors", "calls"];
/// The world that the kit for C knows.
const SCHEDULER: &str = "scheduler-plugin";

/// A generated file and what it shall hold.
type Made = (PathBuf, Vec<u8>);

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let wit = plugins.join("../wit/0.1.0");
    let made = WORLDS
        .into_iter()
        .flat_map(|world| rust(&wit, world))
        .chain(c(&wit))
        .chain(copies(&wit))
        .chain(wasi_nn(&plugins));
    let mut stale = 0;
    for (to, content) in made {
        let to = plugins.join(to);
        if std::fs::read(&to).is_ok_and(|is| is == content) {
            continue;
        }
        stale += 1;
        if check {
            eprintln!("{} is not what wit/ says; run: cargo run -p sequor-plugin-bindings (in plugins/)", to.display());
            continue;
        }
        std::fs::create_dir_all(to.parent().unwrap_or(&plugins)).expect("a folder for generated code");
        std::fs::write(&to, content).expect("generated code is written");
        println!("wrote {}", to.display());
    }
    if check && stale > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn rust(wit: &Path, (world, file, module, shares): RustWorld) -> Vec<Made> {
    let shared = |of: &str| {
        let import = |name: &str| (format!("sequor:plugin/{name}@0.1.0"), WithOption::Path(format!("{of}::{name}")));
        IMPORTS.map(import).to_vec()
    };
    let options = wit_bindgen_rust::Opts {
        format: true,
        generate_all: true,
        pub_export_macro: true,
        default_bindings_module: Some(module.into()),
        with: shares.map(shared).unwrap_or_default(),
        ..Default::default()
    };
    let files = generate(wit, world, Box::new(options.build()));
    files.into_iter().map(|(_, content)| (PathBuf::from(file), content)).collect()
}

fn c(wit: &Path) -> Vec<Made> {
    // The type of the component is put into the module by `sequor plugin build`: no object file in the tree.
    let options = wit_bindgen_c::Opts { no_object_file: true, ..Default::default() };
    let files = generate(wit, SCHEDULER, options.build());
    files.into_iter().map(|(name, content)| (Path::new("sdk-c").join(name), content)).collect()
}

/// The imports of wasi-nn, for a guest that is written against it.
fn wasi_nn(plugins: &Path) -> Vec<Made> {
    let options = wit_bindgen_rust::Opts { format: true, generate_all: true, ..Default::default() };
    let wit = plugins.join("../wit/wasi-nn/0.2.0-rc-2024-10-28");
    let files = generate(&wit, "ml", Box::new(options.build()));
    files.into_iter().map(|(_, content)| (PathBuf::from("guests/nn-model/src/wasi_nn.rs"), content)).collect()
}

/// Each SDK carries the contract it is made for.
fn copies(wit: &Path) -> Vec<Made> {
    let mut made = Vec::new();
    for entry in std::fs::read_dir(wit).expect("wit/0.1.0 is there").flatten() {
        let content = std::fs::read(entry.path()).expect("a file of the contract");
        made.push((Path::new("sdk/wit").join(entry.file_name()), content));
    }
    made
}

fn generate(wit: &Path, world: &str, mut generator: Box<dyn WorldGenerator>) -> Vec<(String, Vec<u8>)> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit).expect("the contract is valid WIT");
    let world = resolve.select_world(&[package], Some(world)).expect("the world is in it");
    let mut files = Files::default();
    generator.generate(&mut resolve, world, &mut files).expect("code for the world");
    files.iter().map(|(name, content)| (name.to_owned(), content.to_vec())).collect()
}
