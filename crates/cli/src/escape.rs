//! Escaping for terminals. Names and messages from peers and files may contain control characters,
//! which could forge lines or control the terminal.

/// Escapes every control character of an external string.
pub fn printable(text: &str) -> String {
    escape(text, &[])
}

/// Escapes control characters except newline and tab.
pub(crate) fn lines(text: &str) -> String {
    escape(text, &['\n', '\t'])
}

/// Escapes control characters except those in `kept`.
pub(crate) fn escape(text: &str, kept: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() && !kept.contains(&character) {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Escapes the control characters of a rendered message. With `coloured`, keeps sequences that only
/// select a colour or style.
pub(crate) fn drawn(text: &str, coloured: bool) -> String {
    let mut pieces = text.split("\x1b[");
    let mut escaped = pieces.next().map(lines).unwrap_or_default();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit() && c != ';');
        let is_style = coloured && end.is_some_and(|end| piece[end..].starts_with('m'));
        escaped.push_str(if is_style { "\x1b[" } else { "\\u{1b}[" });
        escaped.push_str(&lines(piece));
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\nb\r\u{7}\x1b]0;t\u{9b}31m\td";
        assert_eq!(
            printable(hostile),
            "a\\nb\\r\\u{7}\\u{1b}]0;t\\u{9b}31m\\td"
        );
        assert_eq!(lines(hostile), "a\nb\\r\\u{7}\\u{1b}]0;t\\u{9b}31m\td");
        assert_eq!(printable("föö 漢"), "föö 漢");
    }

    #[test]
    fn a_drawn_message_keeps_colours_alone() {
        let text = "\x1b[31m×\x1b[0m \x1b[2J\x1b]0;t\x07\x1b[1;1Hx\x1b[";
        assert_eq!(
            drawn(text, true),
            "\x1b[31m×\x1b[0m \\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{1b}[1;1Hx\\u{1b}["
        );
        assert!(!drawn(text, false).contains(char::is_control));
    }
}
