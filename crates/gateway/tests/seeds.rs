//! The inputs that fuzzing starts from, in each test run.

#[path = "harness/any_config.rs"]
mod any_config;

/// Contents of the files that fuzzing starts from.
fn seeds() -> Vec<String> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/seeds/gateway_config"
    );
    let files = std::fs::read_dir(folder).expect("fuzz/seeds is in the repository");
    let read = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.expect("a file").path()).expect("the seed is readable")
    };
    files.map(read).collect()
}

#[test]
fn fuzz_seeds_round_trip_or_are_refused_with_a_line() {
    seeds().iter().for_each(|text| any_config::any_config(text));
}
