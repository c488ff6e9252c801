//! The comparison of two answers, member by member.
//!
//! Elements of a list are compared with equal elements of the other list, or else with the element that has
//! the same code. The order of a list is not compared.

use serde::Serialize;
use serde_json::Value;

/// A member of one or both answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedMember {
    /// Names of the members from the root, such as `codes[cane].display`.
    pub path: String,
    /// Value in the answer of this server.
    pub here: Option<Value>,
    /// Value in the answer of the other server.
    pub other: Option<Value>,
}

impl ComparedMember {
    pub fn differs(&self) -> bool {
        self.here != self.other
    }
}

/// Compares two answers. A member that is null does not exist.
pub fn compare(here: &Value, other: &Value) -> Vec<ComparedMember> {
    let mut members = Vec::new();
    descend(String::new(), Some(here), Some(other), &mut members);
    members
}

fn descend(path: String, here: Option<&Value>, other: Option<&Value>, members: &mut Vec<ComparedMember>) {
    let exists = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
    let (here, other) = (here.filter(|_| exists(here)), other.filter(|_| exists(other)));
    match (here, other) {
        (None, None) => {}
        (Some(Value::Object(_)) | None, Some(Value::Object(_)) | None) => {
            for name in names(here, other) {
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let member = |value: Option<&Value>| value.and_then(|value| value.get(name)).cloned();
                descend(path, member(here).as_ref(), member(other).as_ref(), members);
            }
        }
        (Some(Value::Array(_)) | None, Some(Value::Array(_)) | None) => {
            for (at, (here, other)) in pairs(elements(here), elements(other)).into_iter().enumerate() {
                let label = here.or(other).and_then(key).map_or_else(|| (at + 1).to_string(), str::to_owned);
                descend(format!("{path}[{label}]"), here, other, members);
            }
        }
        _ => members.push(ComparedMember { path, here: here.cloned(), other: other.cloned() }),
    }
}

/// The names of the members of two objects.
fn names<'a>(here: Option<&'a Value>, other: Option<&'a Value>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in
        [here, other].into_iter().flatten().filter_map(Value::as_object).flat_map(|object| object.keys())
    {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn elements(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn key(element: &Value) -> Option<&str> {
    element["code"].as_str()
}

/// Each element of the two lists once, together with its counterpart.
fn pairs<'a>(here: &'a [Value], other: &'a [Value]) -> Vec<(Option<&'a Value>, Option<&'a Value>)> {
    let mut rest: Vec<_> = other.iter().map(Some).collect();
    let mut take = |matches: &dyn Fn(&Value) -> bool| {
        rest.iter_mut().find(|element| element.is_some_and(matches)).and_then(Option::take)
    };
    let mut pairs: Vec<_> = here.iter().map(|element| take(&|other| other == element)).collect();
    for (element, counterpart) in here.iter().zip(&mut pairs) {
        if counterpart.is_none() && key(element).is_some() {
            *counterpart = take(&|other| key(other) == key(element));
        }
    }
    let both = here.iter().zip(pairs).map(|(element, counterpart)| (Some(element), counterpart));
    both.chain(rest.into_iter().flatten().map(|element| (None, Some(element)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(here: Value, other: Value, expected: &[&str]) {
        let members = compare(&here, &other);
        let differing: Vec<_> =
            members.iter().filter(|member| member.differs()).map(|member| member.path.as_str()).collect();
        assert_eq!(differing, expected);
    }

    #[test]
    fn members_are_compared_by_name() {
        check(json!({ "a": 1, "b": null }), json!({ "a": 1 }), &[]);
        check(json!({ "a": 1, "b": 2 }), json!({ "c": 3, "a": 2 }), &["a", "b", "c"]);
        check(json!({ "a": { "b": "x" } }), json!({}), &["a.b"]);
        check(json!({ "a": { "b": "x" } }), json!({ "a": "x" }), &["a"]);
    }

    #[test]
    fn lists_are_compared_without_their_order() {
        let code = |code: &str, display: &str| json!({ "code": code, "display": display });
        let here = json!({ "codes": [code("a", "A"), code("b", "B"), code("c", "C")] });
        let other = json!({ "codes": [code("c", "C"), code("a", "other"), code("d", "D")] });
        let expected =
            ["codes[a].display", "codes[b].code", "codes[b].display", "codes[d].code", "codes[d].display"];
        check(here.clone(), other, &expected);
        check(here.clone(), here, &[]);
        check(json!(["x", "y"]), json!(["y"]), &["[1]"]);
    }
}
