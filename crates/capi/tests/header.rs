//! Compares the header with cbindgen's output for the sources. `CCPLANE_HEADER=write cargo test -p
//! ccplane-capi --test all header` regenerates it.

use std::fs;
use std::path::Path;

#[test]
fn the_header_matches_the_sources() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(home.join("cbindgen.toml")).expect("it is well-formed");
    let sources = ["types", "handle", "functions"].map(|name| home.join(format!("src/{name}.rs")));
    let bindings = sources
        .into_iter()
        .fold(
            cbindgen::Builder::new().with_config(config),
            cbindgen::Builder::with_src,
        )
        .generate()
        .expect("cbindgen parses the sources");
    let mut made = Vec::new();
    bindings.write(&mut made);
    // Safety sections are for Rust callers; docs/c.md lists the requirements for C.
    let made = without_safety(&String::from_utf8(made).expect("a text"));
    let kept = home.join("include/ccplane.h");
    if std::env::var_os("CCPLANE_HEADER").is_some_and(|word| word == "write") {
        fs::write(&kept, &made).expect("the header is writable");
    }
    let kept = fs::read_to_string(kept).unwrap_or_default();
    assert!(
        kept == made,
        "the header does not match the sources; run CCPLANE_HEADER=write cargo test -p \
        ccplane-capi --test all header"
    );
}

/// Removes the `# Safety` sections from the functions' comments.
fn without_safety(header: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in header.lines() {
        inside = (inside && line.starts_with("//")) || line == "// # Safety";
        if !inside {
            out.push(line);
        } else if out.last() == Some(&"//") {
            out.pop();
        }
    }
    out.join("\n") + "\n"
}
