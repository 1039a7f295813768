//! What someone meant who wrote a name that is not there.

/// Names in `known` that someone who wrote `wrong` may have meant: at most two letters away, or
/// beginning the same.
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
    fn a_slip_of_the_finger_is_recognised() {
        let known = ["reno", "cubic", "bbr"];
        assert_eq!(suggestions("cubik", known), ["cubic"]);
        assert_eq!(suggestions("renoo", known), ["reno"]);
        assert_eq!(suggestions("cub", known), ["cubic"]);
        assert!(suggestions("copa", known).is_empty());
    }
}
