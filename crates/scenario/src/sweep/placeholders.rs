//! Placeholders in values: `{back}` is replaced by the point's value of the axis `back`.

use crate::contender::split_agent;
use crate::{SourceLocation, TomlNode, TomlTree};

/// Returns the names of all placeholders in a value.
pub(super) fn names_in(node: &TomlNode) -> Vec<&str> {
    match node {
        TomlNode::Value(text, _) => split(text)
            .filter_map(|part| match part {
                Part::Name(name) => Some(name),
                Part::Text(_) => None,
            })
            .collect(),
        TomlNode::Table(tree) => tree.0.values().flat_map(names_in).collect(),
        TomlNode::List(trees) => {
            let nodes = trees.iter().flat_map(|tree| tree.0.values());
            nodes.flat_map(names_in).collect()
        }
    }
}

/// Replaces all placeholders in a value. `value` returns the text of an axis; the error is a name
/// for which there is none, with the location of the value.
pub(super) fn fill(
    node: &TomlNode,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<TomlNode, (String, SourceLocation)> {
    let fill_tree = |tree: &TomlTree| -> Result<TomlTree, (String, SourceLocation)> {
        let nodes = tree.0.iter();
        let nodes = nodes.map(|(key, node)| Ok((key.clone(), fill(node, value)?)));
        Ok(TomlTree(nodes.collect::<Result<_, _>>()?))
    };
    Ok(match node {
        TomlNode::Value(text, location) => {
            let mut filled = String::new();
            for part in split(text) {
                match part {
                    Part::Text(text) => filled += text,
                    Part::Name(name) => {
                        filled +=
                            &value(name).ok_or_else(|| (name.to_owned(), location.clone()))?;
                    }
                }
            }
            TomlNode::Value(filled, location.clone())
        }
        TomlNode::Table(tree) => TomlNode::Table(fill_tree(tree)?),
        TomlNode::List(trees) => {
            TomlNode::List(trees.iter().map(fill_tree).collect::<Result<_, _>>()?)
        }
    })
}

/// Removes the parameters of a contender that contain a placeholder: `./mine.ccp:back={back}`
/// becomes `./mine.ccp`. The address of an agent is kept.
pub(super) fn without_filled_parameters(contender: &str) -> String {
    if let Some((algorithm, address)) = split_agent(contender) {
        return format!("{}@{address}", without_filled_parameters(algorithm));
    }
    let is_filled = |part: &str| split(part).any(|part| matches!(part, Part::Name(_)));
    let parts = contender.split(':');
    let kept: Vec<&str> = parts
        .enumerate()
        .filter(|(index, part)| *index == 0 || !is_filled(part))
        .map(|(_, part)| part)
        .collect();
    kept.join(":")
}

/// Part of a text.
#[derive(Debug, PartialEq)]
enum Part<'t> {
    Text(&'t str),
    Name(&'t str),
}

/// Splits a text at its placeholders. A brace that does not enclose a name is text, as in an inline
/// table.
fn split(text: &str) -> impl Iterator<Item = Part<'_>> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    let mut parts = Vec::new();
    let (mut rest, mut searched) = (text, 0);
    while let Some(open) = rest.get(searched..).and_then(|tail| tail.find('{')) {
        let open = searched + open;
        let inside = rest.get(open + 1..).unwrap_or_default();
        match inside.split_once('}') {
            Some((name, after)) if is_name(name) => {
                parts.push(Part::Text(rest.get(..open).unwrap_or_default()));
                parts.push(Part::Name(name));
                (rest, searched) = (after, 0);
            }
            _ => searched = open + 1,
        }
    }
    parts.push(Part::Text(rest));
    parts.into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn placeholders_are_names_in_braces() {
        let names = |text: &str| {
            let node = TomlNode::Value(
                text.to_owned(),
                SourceLocation {
                    source: 0,
                    span: 0..0,
                },
            );
            names_in(&node)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("\"./a.ccp:back={back}:x={x.y}\""), ["back", "x.y"]);
        assert!(names("[{ a = 1 }, {}, \"{ back }\", \"{\"]").is_empty());
        assert_eq!(names("{{back}"), ["back"]);
    }

    #[test]
    fn parameters_with_placeholders_are_no_part_of_the_name() {
        let name = without_filled_parameters("./mine.ccp:back={back}:start=agent");
        assert_eq!(name, "./mine.ccp:start=agent");
        assert_eq!(without_filled_parameters("cubic"), "cubic");
        let agent = without_filled_parameters("cubic:a={a}:b=1@unix:/tmp/{agent}");
        assert_eq!(agent, "cubic:b=1@unix:/tmp/{agent}");
        let path = without_filled_parameters("./a@b.ccp:back={back}");
        assert_eq!(path, "./a@b.ccp");
        assert_eq!(without_filled_parameters("{name}:a=1"), "{name}:a=1");
    }

    proptest! {
        #[test]
        fn parts_together_are_the_text(text in "[ab{}.]{0,24}") {
            let joined: String = split(&text)
                .map(|part| match part {
                    Part::Text(text) => text.to_owned(),
                    Part::Name(name) => format!("{{{name}}}"),
                })
                .collect();
            prop_assert_eq!(joined, text);
        }
    }
}
