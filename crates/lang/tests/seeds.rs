//! The inputs that fuzzing starts from, in each test run.

#[path = "support/any_text.rs"]
mod any_text;

/// Contents of the files that fuzzing starts from.
fn seeds() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/lang");
    let files = std::fs::read_dir(folder).expect("fuzz/seeds is in the repository");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.expect("a file").path()).expect("it can be read")
    };
    files.map(read).collect()
}

#[test]
fn fuzzing_seeds_compile_or_fail_with_a_position() {
    seeds().iter().for_each(|text| any_text::any_text(text));
}
