//! Tags that the operator of a datapath sets for its flows: a few short `KEY=VALUE` pairs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum tags per flow. Every announcement of a flow carries them: many more would make it
/// several times as long.
pub const TAGS_PER_FLOW_MAX: usize = 8;
/// Maximum bytes of a tag including `=`: enough for a host or customer name.
pub const TAG_BYTES_MAX: usize = 64;

/// A `KEY=VALUE` tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    text: Box<str>,
    /// Index of the `=`.
    equals: usize,
}

/// Tags with unique keys, in the order in which they were given. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Option<Arc<[Tag]>>);

/// Reason why a text is not a valid tag, or a list of tags is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagError {
    /// There is no `=`.
    #[error("`{0}` is not a tag: write KEY=VALUE, such as site=paris")]
    MissingEquals(String),
    /// The key is empty or contains invalid characters.
    #[error(
        "the key of `{0}` must consist of letters, digits, `_`, `-` and `.`: write a tag such as \
         site=paris"
    )]
    InvalidKey(String),
    /// The value contains characters that cannot be displayed.
    #[error("the value of {0:?} contains control characters: remove them")]
    InvalidValue(String),
    /// The tag is too long.
    #[error(
        "a tag of {0} bytes is too long: the maximum is {TAG_BYTES_MAX} bytes, including key and \
         `=`"
    )]
    TooLong(usize),
    /// There are too many tags.
    #[error("{0} tags are too many: the maximum is {TAGS_PER_FLOW_MAX}")]
    TooMany(usize),
    /// A key occurs twice.
    #[error("the tag `{0}` is given twice: give it once")]
    DuplicateKey(String),
}

impl Tag {
    /// Part before the `=`.
    pub fn key(&self) -> &str {
        &self.text[..self.equals]
    }

    /// Part after the `=`; may be empty.
    pub fn value(&self) -> &str {
        &self.text[self.equals + 1..]
    }

    /// The tag as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Tag, TagError> {
        if text.len() > TAG_BYTES_MAX {
            return Err(TagError::TooLong(text.len()));
        }
        let Some((key, value)) = text.split_once('=') else {
            return Err(TagError::MissingEquals(text.to_owned()));
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if key.is_empty() || !key.chars().all(allowed) {
            return Err(TagError::InvalidKey(text.to_owned()));
        }
        if value.chars().any(char::is_control) {
            return Err(TagError::InvalidValue(text.to_owned()));
        }
        Ok(Tag {
            text: text.into(),
            equals: key.len(),
        })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Tags {
    /// Creates a list of tags with unique keys.
    pub fn new(tags: impl IntoIterator<Item = Tag>) -> Result<Tags, TagError> {
        let all: Vec<Tag> = tags.into_iter().collect();
        if all.len() > TAGS_PER_FLOW_MAX {
            return Err(TagError::TooMany(all.len()));
        }
        let twice =
            |(at, tag): (usize, &Tag)| all[..at].iter().any(|before| before.key() == tag.key());
        if let Some((_, tag)) = all.iter().enumerate().find(|one| twice(*one)) {
            return Err(TagError::DuplicateKey(tag.key().to_owned()));
        }
        Ok(Tags((!all.is_empty()).then(|| all.into())))
    }

    /// Value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.as_slice()
            .iter()
            .find(|tag| tag.key() == key)
            .map(Tag::value)
    }

    /// All tags.
    pub fn as_slice(&self) -> &[Tag] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns true if there are no tags.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_key_and_a_value() {
        let tag: Tag = "site=a=b ü".parse().unwrap();
        assert_eq!((tag.key(), tag.value()), ("site", "a=b ü"));
        assert_eq!(
            "k=".parse::<Tag>().map(|tag| tag.value().to_owned()),
            Ok(String::new())
        );
        for (bad, says) in [
            ("site", "KEY=VALUE"),
            ("=x", "letters"),
            ("a b=x", "letters"),
            ("a=\n", "control characters"),
            (&format!("k={}", "x".repeat(63)), "65 bytes"),
        ] {
            let why = bad.parse::<Tag>().unwrap_err().to_string();
            assert!(why.contains(says), "{bad}: {why}");
        }
        assert!(format!("k={}", "x".repeat(62)).parse::<Tag>().is_ok());
    }

    #[test]
    fn tags_are_few_and_each_key_is_there_once() {
        let tag = |n: usize| format!("k{n}=v{n}").parse::<Tag>().unwrap();
        let tags = Tags::new((0..TAGS_PER_FLOW_MAX).map(tag)).unwrap();
        assert_eq!((tags.get("k3"), tags.get("k9")), (Some("v3"), None));
        assert_eq!(Tags::new((0..9).map(tag)), Err(TagError::TooMany(9)));
        assert_eq!(
            Tags::new([tag(1), tag(1)]),
            Err(TagError::DuplicateKey("k1".to_owned()))
        );
        assert_eq!(Tags::new([]), Ok(Tags::default()));
    }
}
