//! Escapes for text that a terminal shows. Names and messages of peers and in files may contain control
//! characters, which would forge lines or control the terminal.

/// Escapes every control character of a string from outside.
pub(crate) fn printable(text: &str) -> String {
    escape(text, &[])
}

/// Escapes all control characters but those in `kept`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\nb\r\u{7}\x1b]0;t\u{9b}31m\td";
        assert_eq!(printable(hostile), "a\\nb\\r\\u{7}\\u{1b}]0;t\\u{9b}31m\\td");
        assert_eq!(escape("a\n\u{7}\t", &['\n', '\t']), "a\n\\u{7}\t");
        assert_eq!(printable("föö 漢"), "föö 漢");
    }
}
