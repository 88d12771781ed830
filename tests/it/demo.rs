//! Tests `sequor demo`: it includes its model and sounds, so it runs in an empty folder.

use crate::server::{Call, root};

#[test]
fn the_demo_passes_its_comparisons_with_onnx_runtime() {
    let demo = Call::sequor().arguments(["demo"]).end();
    assert_eq!(demo.code, Some(0), "{demo:?}");
    let (first, second) = demo.stdout.split_once("\n\nraw PCM ").unwrap();
    assert!(second.trim_end().ends_with("segments; equal to those of the probabilities above       OK"), "{second}");
    assert!(second.lines().filter(|line| line.starts_with("    speech from ")).count() > 1, "{second}");
    let last: Vec<&str> = first.lines().rev().take(2).collect();
    assert!(last[0].ends_with("equal to ONNX Runtime on the whole file, bit for bit       OK"), "{}", demo.stdout);
    assert!(last[1].starts_with("8 sequences of 4 clients, 1120 steps, "), "{}", demo.stdout);
    assert_eq!(demo.stderr, "");
    print!("{}", demo.stdout);
}

#[test]
fn a_demo_that_may_open_too_few_files_is_refused_as_a_server_is() {
    let ended = Call::sequor().limited(100).arguments(["demo"]).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("this process may open 100 files (ulimit -n), and needs at least "), "{ended:?}");
}

/// The demo's components are embedded in the program and built by hand. This test fails when they must be rebuilt.
#[test]
fn the_components_of_the_demo_match_their_sources() {
    let folder = root().join("src/cli/demo");
    let mut found = String::new();
    for guest in ["pcm-window", "speech-segments"] {
        let sources = root().join("plugins/guests").join(guest);
        let component = std::fs::read(folder.join(format!("{guest}.wasm"))).unwrap();
        let manifest = sequor_wasm::manifest::section(&component).unwrap().unwrap();
        assert_eq!(manifest, std::fs::read_to_string(sources.join("plugin.toml")).unwrap());
        let mut files: Vec<_> =
            std::fs::read_dir(sources.join("src")).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            found += &format!("{} {guest}/src/{name}\n", hash(&std::fs::read(&file).unwrap()));
        }
    }
    let list = folder.join("sources.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&list, &found).unwrap();
    }
    let again = "sequor plugin build plugins/guests/pcm-window plugins/guests/speech-segments --out src/cli/demo";
    assert_eq!(std::fs::read_to_string(&list).unwrap_or_default(), found, "{again}, then UPDATE_DOCS=1");
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> String {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}
