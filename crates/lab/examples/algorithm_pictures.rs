//! Draws `docs/algorithms/NAME.svg` for every built-in algorithm, or for those named as arguments.

use std::fs;
use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::behaviour::{alone, picture};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms");
    fs::create_dir_all(&folder)?;
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let registry = Registry::builtin();
    for name in registry
        .names()
        .filter(|name| wanted.is_empty() || wanted.iter().any(|w| w == name))
    {
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, picture(name, &alone(&registry, name)?))?;
        println!("{}", path.display());
    }
    Ok(())
}
