//! Tables, for a terminal and for a page: the first column is text, the others are numbers and
//! stand to the right.

use std::fmt::Write;

use crate::html::escape;

/// A column's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// A second line in small print, often the unit.
    pub unit: String,
    /// What it means in one sentence, which a page shows as a tooltip.
    pub meaning: String,
}

/// A heading of two lines has a line break.
impl From<&str> for Column {
    fn from(heading: &str) -> Column {
        let (name, unit) = heading.split_once('\n').unwrap_or((heading, ""));
        (name, unit, "").into()
    }
}

/// As of a `&str`.
impl From<String> for Column {
    fn from(heading: String) -> Column {
        heading.as_str().into()
    }
}

/// Name, unit and meaning.
impl From<(&str, &str, &str)> for Column {
    fn from((name, unit, meaning): (&str, &str, &str)) -> Column {
        Column {
            name: name.to_owned(),
            unit: unit.to_owned(),
            meaning: meaning.to_owned(),
        }
    }
}

/// Headings and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The heads, from the left.
    pub columns: Vec<Column>,
    /// One cell a column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// What a cell says that has nothing to say.
    pub const NOTHING: &str = "–";

    /// A table of these.
    pub fn new<C: Into<Column>>(
        columns: impl IntoIterator<Item = C>,
        rows: Vec<Vec<String>>,
    ) -> Table {
        Table {
            columns: columns.into_iter().map(Into::into).collect(),
            rows,
        }
    }

    /// The same without the columns in which no row says anything: all cells are empty or
    /// [`Table::NOTHING`].
    #[must_use]
    pub fn without_empty(self) -> Table {
        let says = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            column == 0
                || cells
                    .into_iter()
                    .any(|cell| !cell.is_empty() && cell != Table::NOTHING)
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

    /// For a terminal: columns as wide as their widest cell.
    pub fn text(&self) -> String {
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
                // To a text there is nothing to fail.
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

    /// For a page; a narrow window scrolls it. Spaces at the beginning of a cell stay.
    pub fn html(&self) -> String {
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

/// Formats a mean with its ±. Leaves the ± out if it rounds to zero, as for equal values.
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

/// Breaks each line of `text` between words so that none is wider than `width`, for paragraphs
/// beside tables.
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
            table.text(),
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
            Table::new(["", "goodput"], rows).text(),
            "             goodput\n────────────────────\nreno            95.1\nnative:reno      5.0\n"
        );
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_with_their_heads() {
        let rows = vec![row(&["–", "–", "1"]), row(&["b", "", "–"])];
        let table = Table::new(["", "empty", "full"], rows).without_empty();
        assert_eq!(
            table,
            Table::new(["", "full"], vec![row(&["–", "1"]), row(&["b", "–"])])
        );
    }

    #[test]
    fn a_row_that_belongs_to_the_one_above_is_indented() {
        let table = Table::new(["", "x"], vec![row(&["a", "1"]), row(&["  b", ""])]);
        assert!(table.text().ends_with("a    1\n  b\n"), "{}", table.text());
        assert!(
            table.html().contains("<td>&nbsp;&nbsp;b</td><td></td>"),
            "{}",
            table.html()
        );
    }

    #[test]
    fn text_that_is_no_html_stays_text() {
        let table = Table::new([("a<b", "x&y", "\"quoted\"")], vec![row(&["<script>"])]);
        let html = table.html();
        assert!(
            html.contains("title=\"&quot;quoted&quot;\">a&lt;b<small>x&amp;y</small>"),
            "{html}"
        );
        assert!(html.contains("<td>&lt;script&gt;</td>"), "{html}");
    }
}
