//! HTML fragments.

use std::fmt::Write;

/// Escapes text for element content and quoted attributes.
pub fn escape(text: &str) -> String {
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

/// Formats a number with at most three decimals, without trailing zeros: 20, 0.5.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Renders a definition list of (term, definition) rows.
pub fn definitions<T: AsRef<str>>(rows: &[(&str, T)]) -> String {
    let mut out = String::from("<dl>");
    for (name, value) in rows {
        let _ = write!(
            out,
            "<dt>{}</dt><dd>{}</dd>",
            escape(name),
            escape(value.as_ref())
        );
    }
    out + "</dl>"
}

/// Renders a paragraph in small print.
pub fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>", escape(text))
}

/// Renders an unordered list, one item per sentence.
pub fn list<T: AsRef<str>>(sentences: &[T]) -> String {
    let items: String = sentences
        .iter()
        .map(|sentence| format!("<li>{}</li>", escape(sentence.as_ref())))
        .collect();
    format!("<ul>{items}</ul>")
}

/// Formats a time for free text: 0.31 ms, 47 ms, 2.3 s. Tables and axes keep one unit instead.
pub fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        size if size >= 999.5 => format!("{:.1} s", ms / 1e3),
        size if size >= 9.95 => format!("{ms:.0} ms"),
        size if size >= 0.995 => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

/// Renders a warning of (subject, problem) pairs, or nothing if there are none: one line with the
/// number of problems and `advice`, what to do about them, and the problems as details. A single
/// problem is in the line itself. Beyond `most` pairs only the number of further ones is shown, and
/// `rest` names the place that lists them.
pub fn warning<N: AsRef<str>, T: AsRef<str>>(
    title: &str,
    advice: &str,
    complaints: &[(N, T)],
    most: usize,
    rest: &str,
) -> String {
    let problem = |(who, what): &(N, T)| {
        let (who, what) = (escape(who.as_ref()), escape(what.as_ref()));
        format!("<b>{who}</b>: {what}")
    };
    let (title, advice) = (escape(title), escape(advice));
    let line = match complaints {
        [] => return String::new(),
        [only] => {
            let only = problem(only);
            return format!(
                "<div class=\"warning\" role=\"alert\"><p>{title} {only}. {advice}</p></div>"
            );
        }
        several => format!("{title} {} problems. {advice}", several.len()),
    };
    let mut out = format!(
        "<div class=\"warning\" role=\"alert\"><p>{line}</p><details><summary>Details</summary><ul>"
    );
    for complaint in complaints.iter().take(most) {
        let _ = write!(out, "<li>{}</li>", problem(complaint));
    }
    let more = complaints.len().saturating_sub(most);
    if more > 0 {
        let _ = write!(out, "<li>and {more} more, in {}</li>", escape(rest));
    }
    out + "</ul></details></div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_text_is_escaped() {
        assert_eq!(
            escape("<a href='x'>\"&\""),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;"
        );
        for html in [
            definitions(&[("<s>", "<i>")]),
            note("<s>"),
            list(&["<s>"]),
            warning("<s>", "<s>", &[("<i>", "<u>")], 1, ""),
        ] {
            assert!(
                !["<s>", "<i>", "<u>"].iter().any(|tag| html.contains(tag)),
                "{html}"
            );
            assert!(html.contains("&lt;s&gt;"), "{html}");
        }
    }

    #[test]
    fn numbers_have_no_needless_zeros() {
        assert_eq!([20.0, 0.5, 0.1234].map(number), ["20", "0.5", "0.123"]);
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        assert_eq!(
            [2_300.0, 47.2, 9.31, 0.312, 999.7, -1_500.0].map(milliseconds),
            ["2.3 s", "47 ms", "9.3 ms", "0.31 ms", "1.0 s", "-1.5 s"]
        );
    }

    #[test]
    fn complaints_are_one_line_with_advice_and_details() {
        let complaints = [("a", "one"), ("b", "two"), ("c", "three")];
        let html = warning("Careful:", "Run again.", &complaints, 2, "a file");
        assert!(
            html.contains("<p>Careful: 3 problems. Run again.</p><details>")
                && html.contains("two")
                && !html.contains("three")
                && html.contains("and 1 more, in a file"),
            "{html}"
        );
        let html = warning("Careful:", "Run again.", &complaints[..1], 2, "");
        assert!(
            html.contains("<p>Careful: <b>a</b>: one. Run again.</p>") && !html.contains("details"),
            "{html}"
        );
        assert_eq!(warning::<&str, &str>("Careful:", "", &[], 2, ""), "");
    }
}
