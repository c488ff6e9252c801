//! Reads the forms of an HTML page and the values that it contains, as far as a sign-in needs them.

use scraper::{ElementRef, Html, Selector};
use serde_json::Value;

/// An input or button of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormInput {
    /// Attribute `name`; empty if there is none.
    pub name: String,
    /// Attribute `type` in lower case: `text` is the default of an input, and `submit` that of a button.
    pub kind: String,
    /// Attribute `value`.
    pub value: String,
    /// Text on a button.
    pub label: String,
    /// Whether a box or an option is chosen.
    pub is_checked: bool,
}

impl FormInput {
    /// Returns whether the label, value or name of a button contains one of these words, in lower case.
    pub fn says_one_of(&self, words: &[&str]) -> bool {
        let texts = [&self.label, &self.value, &self.name].map(|text| text.to_lowercase());
        texts.iter().any(|text| words.iter().any(|word| text.contains(word)))
    }

    /// Returns whether this submits the form.
    pub fn is_button(&self) -> bool {
        matches!(self.kind.as_str(), "submit" | "image")
    }
}

/// A form of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HtmlForm {
    /// URL to which the form is submitted, relative to the page; empty for the page itself.
    pub action: String,
    /// Whether the form is submitted by POST.
    pub is_post: bool,
    /// Inputs and buttons in order.
    pub inputs: Vec<FormInput>,
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).expect("the selector is well formed")
}

fn inputs(element: ElementRef<'_>) -> Vec<FormInput> {
    // One with the attribute `form` belongs to the form with that id.
    element
        .select(&selector("input, button"))
        .filter(|input| input.attr("form").is_none())
        .map(read_input)
        .collect()
}

fn read_input(input: ElementRef<'_>) -> FormInput {
    let attribute = |name: &str| input.attr(name).unwrap_or_default().to_owned();
    let default = if input.value().name() == "button" { "submit" } else { "text" };
    FormInput {
        name: attribute("name"),
        kind: input.attr("type").unwrap_or(default).to_ascii_lowercase(),
        value: attribute("value"),
        label: input.text().collect::<String>().trim().to_owned(),
        is_checked: input.attr("checked").is_some(),
    }
}

/// The inputs and buttons of a form, within it and elsewhere on the page.
fn all_inputs(page: &Html, form: ElementRef<'_>) -> Vec<FormInput> {
    let id = form.attr("id");
    let is_elsewhere = |input: &ElementRef<'_>| id.is_some() && input.attr("form") == id;
    let elsewhere = selector("input[form], button[form]");
    inputs(form).into_iter().chain(page.select(&elsewhere).filter(is_elsewhere).map(read_input)).collect()
}

/// The forms of a page.
pub fn forms(html: &str) -> Vec<HtmlForm> {
    let page = Html::parse_document(html);
    let read = |form: ElementRef<'_>| HtmlForm {
        action: form.attr("action").unwrap_or_default().to_owned(),
        is_post: form.attr("method").is_some_and(|method| method.eq_ignore_ascii_case("post")),
        inputs: all_inputs(&page, form),
    };
    page.select(&selector("form")).map(read).collect()
}

/// The inputs of a page that have a name, in order, without buttons.
pub fn form_inputs(html: &str) -> Vec<FormInput> {
    let page = Html::parse_document(html);
    let all = inputs(page.root_element()).into_iter();
    all.filter(|input| !input.name.is_empty() && !input.is_button()).collect()
}

/// Named values in a page: those of inputs and of `meta` elements, and the texts in JSON of `script`
/// elements, at any depth.
pub fn stated_values(html: &str) -> Vec<(String, Value)> {
    let page = Html::parse_document(html);
    let mut values = Vec::new();
    for (elements, attribute) in [("input[name]", "value"), ("meta[name]", "content")] {
        values.extend(page.select(&selector(elements)).map(|element| {
            let text = |name: &str| element.attr(name).unwrap_or_default().to_owned();
            (text("name"), text(attribute).into())
        }));
    }
    for script in page.select(&selector("script[type='application/json']")) {
        let text: String = script.text().collect();
        add_texts(&serde_json::from_str(&text).unwrap_or_default(), &mut values);
    }
    values
}

/// Adds the members of a JSON value that are texts, outer ones first.
fn add_texts(json: &Value, values: &mut Vec<(String, Value)>) {
    let members = || json.as_object().into_iter().flatten();
    let texts = members().filter(|(_, value)| value.is_string());
    values.extend(texts.map(|(name, value)| (name.clone(), value.clone())));
    let inner = members().map(|(_, value)| value).chain(json.as_array().into_iter().flatten());
    inner.for_each(|value| add_texts(value, values));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_contains_values_under_names() {
        let html = r#"<meta name="csrf-token" content="m"><input type="hidden" name="nonce" value="i">
            <script type="application/json">{"props": {"csrf": "deep"}, "csrf": "j", "n": 1}</script>"#;
        let texts = [("nonce", "i"), ("csrf-token", "m"), ("csrf", "j"), ("csrf", "deep")];
        assert_eq!(stated_values(html), texts.map(|(name, value)| (name.to_owned(), Value::from(value))));
    }

    #[test]
    fn forms_are_read() {
        let html = r#"<form method="post" action="/in?a=1&amp;b=2"><input type="hidden" name="csrf" value="x&quot;y">
            <input id='u' name=user><button name="answer" value="yes"> Allow </button></form>"#;
        let [form] = &forms(html)[..] else { panic!("one form") };
        assert_eq!((form.action.as_str(), form.is_post), ("/in?a=1&b=2", true));
        let inputs: Vec<_> = form.inputs.iter().map(|i| (&*i.name, &*i.kind, &*i.value, &*i.label)).collect();
        let expected =
            [("csrf", "hidden", "x\"y", ""), ("user", "text", "", ""), ("answer", "submit", "yes", "Allow")];
        assert_eq!(inputs, expected);
        assert_eq!(form_inputs(html).len(), 2);
    }

    #[test]
    fn buttons_elsewhere_belong_to_the_form_that_they_name() {
        let html = r#"<form id="out" action="/out"><input type="hidden" name="csrf" value="x"></form>
            <form id="stay" action="/"></form><button form="out" name="logout" value="yes">Yes</button>"#;
        let names: Vec<Vec<_>> =
            forms(html).into_iter().map(|form| form.inputs.into_iter().map(|i| i.name).collect()).collect();
        assert_eq!(names, [vec!["csrf".to_owned(), "logout".to_owned()], Vec::new()]);
    }
}
