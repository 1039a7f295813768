//! Pieces of a page.

use std::fmt::Write;

/// Without needless zeros: 20, 0.5.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Terms and what they are.
pub(super) fn definitions(rows: &[(&str, String)]) -> String {
    let mut out = String::from("<dl>");
    for (name, value) in rows {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    out + "</dl>"
}

/// A table of figures for a page. Headings of two lines have a line break, the second in small print.
pub(crate) fn table_html<H: AsRef<str>>(headings: &[H], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table class=\"figures\"><thead><tr>");
    for heading in headings.iter().map(AsRef::as_ref) {
        let (name, unit) = heading.split_once('\n').unwrap_or((heading, ""));
        let _ = write!(
            out,
            "<th scope=\"col\">{}<small>{}</small></th>",
            escape(name),
            escape(unit)
        );
    }
    out += "</tr></thead><tbody>";
    out += &table_rows(rows);
    out + "</tbody></table></div>"
}

pub(super) fn table_rows(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| -> String { row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect() };
    rows.iter().map(|row| format!("<tr>{}</tr>", cells(row))).collect()
}

pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}
