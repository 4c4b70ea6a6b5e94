//! Texts with places for the fields of an example.

use crate::settings::nearest;

/// A text in which `{name}` stands for a field; `{{` and `}}` are braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Text as it is.
    Text(String),
    /// The value of a field.
    Field(String),
}

/// A template that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// Unknown field.
    #[error(
        "has the unknown placeholder {{{name}}}{}; there are {}; a brace is written twice",
        .hint.as_ref().map_or_else(String::new, |near| format!(" (did you mean {{{near}}}?)")),
        .known.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// What it says.
        name: String,
        /// What it may have meant.
        hint: Option<String>,
        /// The fields.
        known: Vec<String>,
    },
    /// A brace without its other half.
    #[error("has a single brace in {0:?}; a brace is written twice")]
    Brace(String),
}

impl Template {
    /// Reads a template; its placeholders must be among `fields`, if those are known.
    ///
    /// # Errors
    /// When a placeholder or a brace makes no sense.
    pub(super) fn parse(text: &str, fields: Option<&[&str]>) -> Result<Self, TemplateError> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(place) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(place);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                literal.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let lone = || TemplateError::Brace(from.chars().take(20).collect());
            let (name, after) = from.strip_prefix('{').and_then(|inner| inner.split_once('}')).ok_or_else(lone)?;
            if name.is_empty() || name.contains(['{', '\n']) {
                return Err(lone());
            }
            if let Some(known) = fields.filter(|known| !known.contains(&name)) {
                return Err(TemplateError::Unknown {
                    name: name.to_owned(),
                    hint: nearest(name, known.iter().copied()).map(ToString::to_string),
                    known: known.iter().map(|&name| name.to_owned()).collect(),
                });
            }
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Field(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Template { parts })
    }

    /// Its parts in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The fields that it has a place for.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| if let Part::Field(name) = part { Some(name.as_str()) } else { None })
    }

    /// Whether it has a place for `field`.
    pub(super) fn names(&self, field: &str) -> bool {
        self.fields().any(|name| name == field)
    }

    /// The text with every field put in.
    ///
    /// # Errors
    /// The name of a field that `get` does not know.
    pub(super) fn fill<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> Result<String, String> {
        let part = |part: &Part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Field(name) => get(name).map(str::to_owned).ok_or_else(|| name.clone()),
        };
        self.parts.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_braces() {
        let template = Template::parse("Q: {question}\n{{x}} {a}{a}", Some(&["question", "a"])).unwrap();
        let fill = |name: &str| Some(if name == "a" { "1" } else { "why?" });
        assert_eq!(template.fill(fill).unwrap(), "Q: why?\n{x} 11");
        assert_eq!(template.fill(|name| (name == "a").then_some("1")).unwrap_err(), "question");
        assert_eq!(template.parts().len(), 5);
        assert_eq!(Template::parse("", Some(&[])).unwrap().parts(), []);
    }

    #[test]
    fn mistakes() {
        let say = |text| Template::parse(text, Some(&["question", "article"])).unwrap_err().to_string();
        assert_eq!(
            say("{artcle}"),
            "has the unknown placeholder {artcle} (did you mean {article}?); there are {question}, {article}; a brace is \
             written twice"
        );
        for text in ["a { b", "a } b", "{}", "{a\nb}"] {
            assert!(say(text).starts_with("has a single brace in"), "{text}");
        }
        assert!(Template::parse("{anything}", None).is_ok());
    }
}
