//! Settings that take a single value or a list.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::ParsedValue;

/// A single value, or a list of values: [`String`], or [`ParsedValue`] for a type that is also
/// written as a number. The span of a single value is empty, since the parser reports only the span
/// of the setting.
#[derive(Debug)]
pub struct ValueOrList<V>(pub Vec<Spanned<V>>);

impl<T: Clone> ValueOrList<ParsedValue<T>> {
    /// Returns the values without their spans.
    pub fn values(&self) -> Vec<T> {
        self.0
            .iter()
            .map(|value| value.get_ref().0.clone())
            .collect()
    }
}

impl<V> Default for ValueOrList<V> {
    fn default() -> ValueOrList<V> {
        ValueOrList(Vec::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for ValueOrList<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValueOrList<V>, D::Error> {
        deserializer
            .deserialize_any(ValueOrListVisitor(PhantomData))
            .map(ValueOrList)
    }
}

struct ValueOrListVisitor<V>(PhantomData<V>);

/// Deserializes a single value. A value of the wrong type gets the error of `V`.
fn single<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Spanned<V>>, D::Error> {
    Ok(vec![Spanned::new(0..0, V::deserialize(deserializer)?)])
}

impl<'de, V: Deserialize<'de>> Visitor<'de> for ValueOrListVisitor<V> {
    type Value = Vec<Spanned<V>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        Ok(all)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        single(de::value::StrDeserializer::new(text))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        single(de::value::BoolDeserializer::new(value))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        single(de::value::I64Deserializer::new(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        single(de::value::F64Deserializer::new(number))
    }
}
