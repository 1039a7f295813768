//! The inputs that fuzzing starts from, in each test run.

#[path = "harness/tables.rs"]
mod tables;

/// Contents of the files that fuzzing starts from.
fn seeds() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/tables");
    let files = std::fs::read_dir(folder).expect("fuzz/seeds is in the repository");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.expect("a file").path()).expect("a readable file")
    };
    files.map(read).collect()
}

#[test]
fn seeds_of_fuzzing_are_tables_or_are_refused() {
    seeds().iter().for_each(|text| tables::any_table(text));
}
