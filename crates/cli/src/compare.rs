//! `ccplane compare`: shows the results of several runs on one page, or saves its charts.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ccplane_lab::compare::{CompareError, Comparison, ComparisonChart};
use ccplane_report::Provenance;
use clap::{Args, ValueEnum};

use crate::exit::{Failure, FailureKind};
use crate::results;

#[derive(Args)]
pub struct CompareArgs {
    /// Result folders of `ccplane run`, two or more.
    #[arg(value_name = "FOLDER", required = true, num_args = 2..)]
    folders: Vec<PathBuf>,
    /// File to write, or with `--format` and without an extension a folder; without it a new one,
    /// `ccplane-results/compare-N.html`.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Format of the output; without it the extension of `--out` decides. `html` is the page, `pdf`
    /// all charts in one file. `svg`, `png` and `csv` are a file per chart in a folder, or one file
    /// for all if `--out` has the extension. `png` and `pdf` need rsvg-convert or cairosvg.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Overwrite an existing page or file, or charts of the same name in a folder.
    #[arg(long, requires = "out")]
    force: bool,
    /// Open the page in a browser: the program of `$BROWSER`, otherwise `xdg-open`.
    #[arg(long)]
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Html,
    Pdf,
    Svg,
    Png,
    Csv,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Pdf => "pdf",
            Format::Svg => "svg",
            Format::Png => "png",
            Format::Csv => "csv",
        }
    }

    /// Returns the format that the extension of a path names.
    fn from_path(path: &Path) -> Option<Format> {
        let extension = path.extension().and_then(OsStr::to_str)?.to_lowercase();
        Format::value_variants()
            .iter()
            .copied()
            .find(|format| format.extension() == extension)
    }
}

/// Programs that convert SVG from standard input to a file, with their arguments. The file follows.
/// PNG has twice the size of the drawing, for sharp text.
const CONVERTERS: [(&str, &[&str]); 2] = [
    ("rsvg-convert", &["--zoom", "2", "--output"]),
    ("cairosvg", &["-", "--scale", "2", "--output"]),
];

pub fn run(args: &CompareArgs, json: bool) -> Result<(), Failure> {
    let comparison = Comparison::read(&args.folders).map_err(failure)?;
    let named = args.out.as_deref().and_then(Format::from_path);
    let format = args.format.or(named).unwrap_or(Format::Html);
    if let Some(other) = named.filter(|named| *named != format) {
        let what = format!(
            "--format {} does not match the extension .{} of --out",
            format.extension(),
            other.extension()
        );
        return Err(Failure::text(FailureKind::Usage, what).hint("omit one of the two"));
    }
    let one_file = named.is_some() || matches!(format, Format::Html | Format::Pdf);
    let extension = one_file.then_some(format.extension());
    let converter = match format {
        Format::Png | Format::Pdf => Some(converter(format)?),
        _ => None,
    };
    let out = results::page(args.out.as_deref(), extension, args.force)?;
    let files = match (format, one_file) {
        (Format::Html, _) => {
            let command = std::env::args().collect::<Vec<_>>().join(" ");
            let provenance = Provenance::now(crate::build(), command.clone(), false);
            vec![(out.clone(), comparison.page(&command, &provenance))]
        }
        (Format::Csv, true) => {
            let text = ComparisonChart::csv_of_all(&comparison.charts());
            vec![(out.clone(), text)]
        }
        (_, true) => {
            let text = ComparisonChart::svg_of_all(&comparison.charts());
            vec![(out.clone(), text)]
        }
        (_, false) => {
            let prefix = file_prefix(&out);
            let charts = comparison.charts();
            let name = |chart: &ComparisonChart| {
                out.join(format!("{prefix}{}.{}", chart.file, format.extension()))
            };
            let text = |chart: &ComparisonChart| match format {
                Format::Csv => chart.csv(),
                _ => chart.svg(),
            };
            charts
                .iter()
                .map(|chart| (name(chart), text(chart)))
                .collect()
        }
    };
    for (path, text) in &files {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|why| unwritable(path, &why))?;
        }
        match converter {
            Some(converter) => convert(converter, format, text, path)?,
            None => fs::write(path, text).map_err(|why| unwritable(path, &why))?,
        }
    }
    if args.open {
        results::open_page(&out);
    }
    if json {
        let paths = files.iter().map(|(path, _)| path.display().to_string());
        let mut object = comparison.json();
        match format {
            Format::Html => object["page"] = out.display().to_string().into(),
            _ => object["files"] = paths.collect::<Vec<_>>().into(),
        }
        println!("{object}");
        return Ok(());
    }
    if let Some(differences) = comparison.differences() {
        print!("{}", differences.to_text());
        println!();
    }
    print!("{}", comparison.table().to_text());
    println!();
    match format {
        Format::Html => println!("page: {}", out.display()),
        _ => {
            for (path, _) in &files {
                println!("chart: {}", path.display());
            }
        }
    }
    Ok(())
}

/// Returns the beginning of the file names in a folder: the name of the folder. The root has none.
fn file_prefix(folder: &Path) -> String {
    // `.` and `..` have a name only as an absolute path. A new folder has no absolute path yet.
    let absolute = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().map(OsStr::to_string_lossy);
    name.map_or(String::new(), |name| format!("{name}-"))
}

type Converter = (&'static str, &'static [&'static str]);

/// Returns the first converter that is installed.
fn converter(format: Format) -> Result<Converter, Failure> {
    let installed = |(program, ..): &Converter| {
        let version = Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        version.is_ok_and(|status| status.success())
    };
    CONVERTERS.into_iter().find(installed).ok_or_else(|| {
        let what = format!(
            "--format {} needs rsvg-convert or cairosvg to convert SVG, and neither is installed",
            format.extension()
        );
        Failure::text(FailureKind::Unsupported, what).hint(
            "install one of them (apt install librsvg2-bin, or pip install cairosvg), or use \
             --format svg; the page saves PNG without them",
        )
    })
}

/// Converts a drawing to a file.
fn convert(
    (program, arguments): Converter,
    format: Format,
    svg: &str,
    path: &Path,
) -> Result<(), Failure> {
    let failed = |why: String| {
        let what = format!("{program} did not write {}: {why}", path.display());
        Failure::text(FailureKind::Failed, what).hint("use --format svg, and convert the files")
    };
    let child = Command::new(program)
        .args(["--format", format.extension()])
        .args(arguments)
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|why| failed(why.to_string()))?;
    if let Some(mut input) = child.stdin.take() {
        // A program that ends early says why on standard error.
        match input.write_all(svg.as_bytes()) {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(why.to_string()));
            }
            _ => {}
        }
    }
    let output = child
        .wait_with_output()
        .map_err(|why| failed(why.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

fn unwritable(path: &Path, why: &std::io::Error) -> Failure {
    Failure::text(
        FailureKind::Failed,
        format!("{} cannot be written: {why}", path.display()),
    )
    .hint("choose another path with --out")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_charts_begin_with_the_name_of_their_folder() {
        let here = std::env::current_dir().expect("a current folder");
        let name = here.file_name().expect("a name").to_string_lossy();
        assert_eq!(file_prefix(Path::new(".")), format!("{name}-"));
        assert_eq!(file_prefix(Path::new("absent/charts")), "charts-");
        assert_eq!(file_prefix(Path::new("/")), "");
    }
}
