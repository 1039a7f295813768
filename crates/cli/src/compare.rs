//! `ccplane compare`: shows the results of several runs on one page.

use std::fs;
use std::path::PathBuf;

use ccplane_lab::compare::{CompareError, Comparison};
use ccplane_report::Provenance;
use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::results;

#[derive(Args)]
pub struct CompareArgs {
    /// Result folders of `ccplane run`, two or more.
    #[arg(value_name = "FOLDER", required = true, num_args = 2..)]
    folders: Vec<PathBuf>,
    /// Page to write; without it a new one, `ccplane-results/compare-N.html`.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace an existing page.
    #[arg(long, requires = "out")]
    force: bool,
    /// Open the page in a browser: the program of `$BROWSER`, otherwise `xdg-open`.
    #[arg(long)]
    open: bool,
}

pub fn run(args: &CompareArgs, json: bool) -> Result<(), Failure> {
    let comparison = Comparison::read(&args.folders).map_err(failure)?;
    let page = results::page(args.out.as_deref(), args.force)?;
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let provenance = Provenance::now(crate::build(), command.clone(), false);
    let unwritable = |why: std::io::Error| {
        Failure::text(
            FailureKind::Failed,
            format!("{} cannot be written: {why}", page.display()),
        )
        .hint("choose another path with --out")
    };
    if let Some(folder) = page.parent() {
        fs::create_dir_all(folder).map_err(unwritable)?;
    }
    fs::write(&page, comparison.page(&command, &provenance)).map_err(unwritable)?;
    if args.open {
        results::open_page(&page);
    }
    if json {
        let mut object = comparison.json();
        object["page"] = page.display().to_string().into();
        println!("{object}");
        return Ok(());
    }
    if let Some(differences) = comparison.differences() {
        print!("{}", differences.to_text());
        println!();
    }
    print!("{}", comparison.table().to_text());
    println!("\npage: {}", page.display());
    Ok(())
}

fn failure(why: CompareError) -> Failure {
    let hint = match &why {
        CompareError::Absent(_) | CompareError::NoRun { .. } => {
            "give result folders of `ccplane run`, such as ccplane-results/run-1"
        }
        CompareError::Schema { .. } => {
            "run the experiment again, from `scenario.toml` in that folder"
        }
        CompareError::Twice(_) => "list each folder once",
        _ => "run it again, or give another folder",
    };
    Failure::new(FailureKind::Usage, why).hint(hint)
}
