//! Tables for terminal and HTML. The first column is text; the others are right-aligned numbers.

use std::fmt::Write;

use crate::html::escape;

/// Column header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// First line of the header.
    pub name: String,
    /// Second line in small print, often the unit.
    pub unit: String,
    /// One-sentence explanation, shown as a tooltip in HTML.
    pub meaning: String,
}

/// Splits a header at its first line break into name and unit.
impl From<&str> for Column {
    fn from(heading: &str) -> Column {
        let (name, unit) = heading.split_once('\n').unwrap_or((heading, ""));
        (name, unit, "").into()
    }
}

/// Same as for `&str`.
impl From<String> for Column {
    fn from(heading: String) -> Column {
        heading.as_str().into()
    }
}

/// Takes name, unit and meaning.
impl From<(&str, &str, &str)> for Column {
    fn from((name, unit, meaning): (&str, &str, &str)) -> Column {
        Column {
            name: name.to_owned(),
            unit: unit.to_owned(),
            meaning: meaning.to_owned(),
        }
    }
}

/// Column headers and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Headers, left to right.
    pub columns: Vec<Column>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Content of a cell without a value.
    pub const EMPTY_CELL: &str = "–";

    /// Creates a table from headers and rows.
    pub fn new<C: Into<Column>>(
        columns: impl IntoIterator<Item = C>,
        rows: Vec<Vec<String>>,
    ) -> Table {
        Table {
            columns: columns.into_iter().map(Into::into).collect(),
            rows,
        }
    }

    /// Removes the columns whose cells are all empty or [`Table::EMPTY_CELL`]; the first column
    /// stays.
    #[must_use]
    pub fn without_empty_columns(self) -> Table {
        let says = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            column == 0
                || cells
                    .into_iter()
                    .any(|cell| !cell.is_empty() && cell != Table::EMPTY_CELL)
        };
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|column| says(*column))
            .collect();
        let pick = |row: &Vec<String>| {
            shown
                .iter()
                .filter_map(|at| row.get(*at).cloned())
                .collect()
        };
        Table {
            columns: shown
                .iter()
                .filter_map(|at| self.columns.get(*at).cloned())
                .collect(),
            rows: self.rows.iter().map(pick).collect(),
        }
    }

    /// Renders for a terminal; each column is as wide as its widest cell.
    pub fn to_text(&self) -> String {
        let letters = |text: &str| text.chars().count();
        let width = |(at, column): (usize, &Column)| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(at))
                .map(|cell| letters(cell));
            cells.fold(letters(&column.name).max(letters(&column.unit)), usize::max)
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = String::new();
            for (at, (cell, width)) in cells.zip(&widths).enumerate() {
                // Writing to a `String` cannot fail.
                let _ = match at {
                    0 => write!(out, "{cell:<width$}"),
                    _ => write!(out, "  {cell:>width$}"),
                };
            }
            out.trim_end().to_owned() + "\n"
        };
        let mut out = line(&mut self.columns.iter().map(|column| column.name.as_str()));
        if self.columns.iter().any(|column| !column.unit.is_empty()) {
            out += &line(&mut self.columns.iter().map(|column| column.unit.as_str()));
        }
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        out += &format!("{}\n", "─".repeat(total));
        for row in &self.rows {
            out += &line(&mut row.iter().map(String::as_str));
        }
        out
    }

    /// Renders as HTML that scrolls in a narrow window. Leading spaces of a cell are kept.
    pub fn to_html(&self) -> String {
        let mut out = String::from("<div class=\"scroll\"><table class=\"figures\"><thead><tr>");
        for column in &self.columns {
            let meaning = match column.meaning.as_str() {
                "" => String::new(),
                meaning => format!(" title=\"{}\"", escape(meaning)),
            };
            let _ = write!(
                out,
                "<th scope=\"col\"{meaning}>{}<small>{}</small></th>",
                escape(&column.name),
                escape(&column.unit)
            );
        }
        out += "</tr></thead><tbody>";
        for row in &self.rows {
            out += "<tr>";
            for cell in row {
                let text = cell.trim_start_matches(' ');
                let indent = "&nbsp;".repeat(cell.len() - text.len());
                let _ = write!(out, "<td>{indent}{}</td>", escape(text));
            }
            out += "</tr>";
        }
        out + "</tbody></table></div>"
    }
}

/// Quotes a cell of a CSV file where RFC 4180, section 2, requires it.
pub fn csv_cell(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Formats a mean and its half-width as `mean ±half`. A half-width that rounds to zero is omitted,
/// as for equal values.
pub fn plus_minus(mean: f64, half: f64, digits: usize) -> String {
    let (mean, half) = (format!("{mean:.digits$}"), format!("{half:.digits$}"));
    match half
        .bytes()
        .any(|byte| byte.is_ascii_digit() && byte != b'0')
    {
        true => format!("{mean} ±{half}"),
        false => mean,
    }
}

/// Wraps each line of `text` at word boundaries to at most `width` columns, for paragraphs printed
/// with tables.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 40);
    for line in text.lines() {
        let mut column = 0;
        for word in line.split_whitespace() {
            let letters = word.chars().count();
            if column > 0 && column + 1 + letters > width {
                out.push('\n');
                column = 0;
            } else if column > 0 {
                out.push(' ');
                column += 1;
            }
            out += word;
            column += letters;
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn a_heading_may_have_two_lines() {
        let table = Table::new(
            ["", "goodput\nMbit/s", "p50"],
            vec![row(&["reno", "9.5", "10.25"])],
        );
        assert_eq!(
            table.to_text(),
            "      goodput    p50\n       Mbit/s\n────────────────────\nreno      9.5  10.25\n"
        );
    }

    #[test]
    fn paragraphs_keep_their_words_and_their_breaks() {
        assert_eq!(wrap("one two three\n\nfour", 7), "one two\nthree\n\nfour\n");
        assert_eq!(
            wrap("incomprehensible it is", 5),
            "incomprehensible\nit is\n"
        );
    }

    #[test]
    fn columns_line_up_and_numbers_stand_to_the_right() {
        let rows = vec![row(&["reno", "95.1"]), row(&["native:reno", "5.0"])];
        assert_eq!(
            Table::new(["", "goodput"], rows).to_text(),
            "             goodput\n────────────────────\nreno            95.1\n\
             native:reno      5.0\n"
        );
    }

    #[test]
    fn empty_columns_are_omitted() {
        let rows = vec![row(&["–", "–", "1"]), row(&["b", "", "–"])];
        let table = Table::new(["", "empty", "full"], rows).without_empty_columns();
        assert_eq!(
            table,
            Table::new(["", "full"], vec![row(&["–", "1"]), row(&["b", "–"])])
        );
    }

    #[test]
    fn a_row_that_belongs_to_the_one_above_is_indented() {
        let table = Table::new(["", "x"], vec![row(&["a", "1"]), row(&["  b", ""])]);
        assert!(
            table.to_text().ends_with("a    1\n  b\n"),
            "{}",
            table.to_text()
        );
        assert!(
            table.to_html().contains("<td>&nbsp;&nbsp;b</td><td></td>"),
            "{}",
            table.to_html()
        );
    }

    #[test]
    fn text_that_is_no_html_stays_text() {
        let table = Table::new([("a<b", "x&y", "\"quoted\"")], vec![row(&["<script>"])]);
        let html = table.to_html();
        assert!(
            html.contains("title=\"&quot;quoted&quot;\">a&lt;b<small>x&amp;y</small>"),
            "{html}"
        );
        assert!(html.contains("<td>&lt;script&gt;</td>"), "{html}");
    }
}
