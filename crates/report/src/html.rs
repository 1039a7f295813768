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

/// Renders a warning box of (subject, problem) pairs, or nothing if there are none. Beyond `most`
/// pairs only the number of further ones is shown, and `rest` names the place that lists them.
pub fn warning<N: AsRef<str>, T: AsRef<str>>(
    title: &str,
    complaints: &[(N, T)],
    most: usize,
    rest: &str,
) -> String {
    if complaints.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "<div class=\"warning\" role=\"alert\">{}<ul>",
        escape(title)
    );
    for (who, what) in complaints.iter().take(most) {
        let _ = write!(
            out,
            "<li><b>{}</b>: {}</li>",
            escape(who.as_ref()),
            escape(what.as_ref())
        );
    }
    let more = complaints.len().saturating_sub(most);
    if more > 0 {
        let _ = write!(out, "<li>and {more} more, in {}</li>", escape(rest));
    }
    out + "</ul></div>"
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
            warning("<s>", &[("<i>", "<u>")], 1, ""),
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
    fn long_lists_of_complaints_are_shortened() {
        let complaints = [("a", "one"), ("b", "two"), ("c", "three")];
        let html = warning("Careful:", &complaints, 2, "a file");
        assert!(
            html.contains("two")
                && !html.contains("three")
                && html.contains("and 1 more, in a file")
        );
        assert_eq!(warning::<&str, &str>("Careful:", &[], 2, ""), "");
    }
}
