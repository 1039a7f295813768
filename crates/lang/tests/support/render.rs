//! Rendering of diagnostics for snapshots.

use ccplane_lang::Diagnostics;
use miette::{GraphicalReportHandler, GraphicalTheme};

/// Returns the report as the user sees it, without colours.
pub fn rendered(diagnostics: Diagnostics) -> String {
    let mut text = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(110)
        .render_report(&mut text, &diagnostics.with_name("alg.ccp"))
        .expect("a report can be shown");
    text
}
