//! Reads the first form of an HTML page, as far as a sign-in needs it.

use regex::Regex;

/// An input of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormInput {
    /// Attribute `name`.
    pub name: String,
    /// Attribute `type`; `text` by default.
    pub kind: String,
    /// Attribute `value`.
    pub value: String,
}

/// Returns the inputs of a page that have a name, in order.
pub fn form_inputs(html: &str) -> Vec<FormInput> {
    let tag = Regex::new(r"(?s)<input\b[^>]*>").expect("the expression is well formed");
    let named = |tag: &str| {
        attribute(tag, "name").map(|name| FormInput {
            name,
            kind: attribute(tag, "type").unwrap_or_else(|| "text".to_owned()),
            value: attribute(tag, "value").unwrap_or_default(),
        })
    };
    tag.find_iter(html).filter_map(|found| named(found.as_str())).collect()
}

/// Returns the URL to which the first form is submitted.
pub fn form_action(html: &str) -> Option<String> {
    let tag = Regex::new(r"(?s)<form\b[^>]*>").expect("the expression is well formed");
    attribute(tag.find(html)?.as_str(), "action")
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let attribute = Regex::new(&format!(r#"\b{name}="([^"]*)""#)).expect("the expression is well formed");
    let raw = attribute.captures(tag)?.get(1)?.as_str().to_owned();
    Some(raw.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_read() {
        let html = r#"<form method="post" action="/in?a=1&amp;b=2"><input type="hidden" name="csrf" value="x&quot;y">
            <input id="u" name="user"><button></button></form>"#;
        assert_eq!(form_action(html).as_deref(), Some("/in?a=1&b=2"));
        let found: Vec<_> = form_inputs(html).into_iter().map(|i| (i.name, i.kind, i.value)).collect();
        let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(found, [own("csrf", "hidden", "x\"y"), own("user", "text", "")]);
    }
}
