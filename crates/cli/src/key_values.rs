//! Lists of settings in the value of one option, such as `rate=5mbit,delay=25ms`.

use std::fmt::Display;
use std::str::FromStr;

use ccplane_scenario::suggestions;

/// One setting, with its position in the option's value.
#[derive(Debug)]
pub struct KeyValue<'a> {
    pub key: &'a str,
    value: &'a str,
    /// Number of the key's first character, from 1.
    position: usize,
}

/// Parses `KEY=VALUE,…` and rejects unknown and duplicate keys. `example` is a valid list.
pub fn parse<'a>(
    text: &'a str,
    keys: &[&'static str],
    example: &str,
) -> Result<Vec<KeyValue<'a>>, String> {
    let mut settings: Vec<KeyValue<'a>> = Vec::new();
    let mut position = 1;
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let setting = KeyValue {
            key,
            value,
            position,
        };
        let shown = key.escape_debug();
        if key.is_empty() {
            return Err(setting.error(format!("a setting is missing; write {example}")));
        }
        if !keys.contains(&key) {
            let near = suggestions(key, keys.iter().copied());
            let hint = near
                .first()
                .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            return Err(setting.error(format!(
                "there is no setting `{shown}`; {hint}known settings: {}",
                keys.join(", ")
            )));
        }
        if let Some(first) = settings.iter().find(|one| one.key == key) {
            return Err(setting.error(format!(
                "`{shown}` is already set at character {}",
                first.position
            )));
        }
        if value.is_empty() {
            return Err(setting.error(format!("`{shown}` has no value; write {shown}=VALUE")));
        }
        position += part.chars().count() + 1;
        settings.push(setting);
    }
    Ok(settings)
}

impl KeyValue<'_> {
    /// Parses the value.
    pub fn parse<T: FromStr<Err: Display>>(&self) -> Result<T, String> {
        let invalid = |why: T::Err| self.error(format!("`{}`: {why}", self.key));
        self.value.parse().map_err(invalid)
    }

    /// Formats an error at the position of this setting.
    pub fn error(&self, reason: impl Display) -> String {
        format!("at character {}: {reason}", self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 3] = ["rate", "delay", "loss"];

    fn error(text: &str) -> String {
        parse(text, &KEYS, "rate=5mbit").expect_err("an invalid list")
    }

    #[test]
    fn settings_are_read_in_any_order() {
        let settings = parse("loss=1%,rate=a:b=c", &KEYS, "").expect("a valid list");
        let read: Vec<_> = settings.iter().map(|one| (one.key, one.value)).collect();
        assert_eq!(read, [("loss", "1%"), ("rate", "a:b=c")]);
    }

    #[test]
    fn errors_name_the_position_and_the_fix() {
        assert_eq!(
            error("rate=1,delya=2ms"),
            "at character 8: there is no setting `delya`; did you mean `delay`? known settings: \
             rate, delay, loss"
        );
        assert_eq!(
            error("µs=1"),
            "at character 1: there is no setting `µs`; known settings: rate, delay, loss"
        );
        assert_eq!(
            error("rate=1,loss=2,rate=3"),
            "at character 15: `rate` is already set at character 1"
        );
        assert_eq!(
            error("rate"),
            "at character 1: `rate` has no value; write rate=VALUE"
        );
        assert_eq!(
            error(""),
            "at character 1: a setting is missing; write rate=5mbit"
        );
        assert!(error("rate=1,").starts_with("at character 8: a setting is missing"));
        let settings = parse("rate=1,delay=x", &KEYS, "").expect("a valid list");
        assert_eq!(
            settings[1].parse::<u32>().expect_err("no number"),
            "at character 8: `delay`: invalid digit found in string"
        );
    }
}
