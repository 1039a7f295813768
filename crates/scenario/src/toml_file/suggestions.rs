//! Suggestions for unknown names.

/// Returns the names in `known` similar to `wrong`: an edit distance of at most 2, or `wrong` as a
/// prefix.
pub fn suggestions<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (strsim::levenshtein(wrong, name), name))
        .filter(|(d, name)| {
            *d <= 2.min(name.len() / 2) || (wrong.len() > 2 && name.starts_with(wrong))
        })
        .collect();
    near.sort();
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_recognised() {
        let known = ["reno", "cubic", "bbr"];
        assert_eq!(suggestions("cubik", known), ["cubic"]);
        assert_eq!(suggestions("renoo", known), ["reno"]);
        assert_eq!(suggestions("cub", known), ["cubic"]);
        assert!(suggestions("copa", known).is_empty());
    }
}
