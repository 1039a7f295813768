//! Settings that take a single value or a list.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::{ParsedValue, SpannedValue};

/// A single value, or a list of values. The span of a single value is empty, since the parser
/// reports only the span of the setting.
#[derive(Debug)]
pub struct ValueOrList<T>(pub Vec<SpannedValue<T>>);

impl<T> ValueOrList<T> {
    /// Returns the values without their spans.
    pub fn values(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.0
            .iter()
            .map(|value| value.get_ref().0.clone())
            .collect()
    }
}

impl<T> Default for ValueOrList<T> {
    fn default() -> ValueOrList<T> {
        ValueOrList(Vec::new())
    }
}

impl<'de, T> Deserialize<'de> for ValueOrList<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValueOrList<T>, D::Error> {
        deserializer
            .deserialize_any(ValueOrListVisitor(PhantomData))
            .map(ValueOrList)
    }
}

struct ValueOrListVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for ValueOrListVisitor<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = Vec<SpannedValue<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, or a list of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        Ok(all)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let value = ParsedValue::deserialize(de::value::StrDeserializer::<E>::new(text))?;
        Ok(vec![Spanned::new(0..0, value)])
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_str(&number.to_string())
    }
}
