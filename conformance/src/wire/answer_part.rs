//! Parts of a response that rows refer to in `capture` and `jwt`.
//!
//! | source | value |
//! |---|---|
//! | `/a/0/b` | a value of a JSON body (RFC 6901); `/` alone is the whole body |
//! | `header:NAME` | a header |
//! | `query:NAME`, `fragment:NAME` | a parameter of the Location |
//! | `body:RE`, `header:NAME:RE` | the first group of a regular expression |
//! | `page:NAME` | the value of an input of a page |
//! | `lower:SOURCE` | a part in lower case |

use regex::Regex;
use serde_json::Value;

use super::exchange::Answer;
use super::html_form;

/// A part of a response, if it exists.
pub fn find_part(response: &Answer, source: &str) -> Option<Value> {
    if source == "/" {
        return response.json();
    }
    if source.starts_with('/') {
        return response.json()?.pointer(source).cloned();
    }
    let (kind, name) = source.split_once(':')?;
    let text = match kind {
        "query" => parameter(response.location()?.query()?, name),
        "fragment" => parameter(response.location()?.fragment()?, name),
        "header" => match name.split_once(':') {
            Some((name, expression)) => first_group(expression, &response.header(name)?),
            None => response.header(name),
        },
        "lower" => find_part(response, name)?.as_str().map(str::to_lowercase),
        "body" => first_group(name, &response.text()),
        "page" => html_form::form_inputs(&response.text())
            .into_iter()
            .find(|input| input.name == name)
            .map(|i| i.value),
        _ => None,
    };
    text.map(Value::String)
}

/// The first parameter with this name.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

fn first_group(expression: &str, text: &str) -> Option<String> {
    Some(Regex::new(expression).ok()?.captures(text)?.get(1)?.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(source: &str, expected: Option<Value>) {
        let mut headers = HeaderMap::new();
        headers.insert("location", "https://a.example/cb?code=x%20y#t=1".parse().unwrap());
        let body = r#"{"a":[{"b":7}],"id":"n-12"}"#.into();
        let response = Answer { status: StatusCode::OK, headers, body };
        assert_eq!(find_part(&response, source), expected, "{source}");
    }

    #[test]
    fn parts_are_found_by_source() {
        check("/a/0/b", Some(json!(7)));
        check("query:code", Some(json!("x y")));
        check("fragment:t", Some(json!("1")));
        check(r"body:n-(\d+)", Some(json!("12")));
        check("header:location:^(https://[^/]+)", Some(json!("https://a.example")));
        check("query:state", None);
        check("header:etag", None);
        check("lower:header:location:https://([^/]+)", Some(json!("a.example")));
        check("nonsense", None);
    }
}
