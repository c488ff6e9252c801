//! The resource Parameters (FHIR R4), input and output of operations.
//!
//! The parser ignores members that this type does not have. It rejects input with an unclear meaning: two
//! values in one parameter, or a value of the wrong JSON type. The primitive type of a string value is kept,
//! because clients expect `valueCode` if an operation defines a parameter as `code`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{Json, Object, serialize};
use crate::{CodeableConcept, Coding, OperationOutcome, Text};

/// The value of a parameter, or its resource.
#[derive(Debug, Clone)]
pub enum Value {
    /// `valueBoolean`.
    Boolean(bool),
    /// A primitive that is a JSON string. The first field is its FHIR type as in the member name (`Uri`,
    /// `Code`, `String`, `Canonical`, `DateTime`, …).
    Text(&'static str, String),
    /// A primitive that is a JSON number, with its original digits (`Integer`, `Decimal`, …).
    Number(&'static str, JsonNumber),
    /// `valueCoding`.
    Coding(Coding),
    /// `valueCodeableConcept`.
    CodeableConcept(CodeableConcept),
    /// Any other complex type (`valuePeriod`, …) as JSON. The first field is the member name, which consists
    /// of ASCII letters and digits.
    Other(String, Box<RawValue>),
    /// `resource` as JSON.
    Resource(Box<RawValue>),
    /// `resource` with an OperationOutcome of a response.
    Outcome(OperationOutcome),
}

/// A JSON number with its original digits, because `1.50` is more precise than `1.5` (FHIR R4, decimal).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonNumber(Box<str>);

impl JsonNumber {
    /// The value as an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl std::fmt::Display for JsonNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for JsonNumber {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<serde_json::Number>()?;
        Ok(Self(text.into()))
    }
}

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        json.get().parse().map_err(|_| de::Error::custom("it is not a number"))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::Text(a, b), Self::Text(c, d)) => a == c && b == d,
            (Self::Number(a, b), Self::Number(c, d)) => a == c && b == d,
            (Self::Coding(a), Self::Coding(b)) => a == b,
            (Self::CodeableConcept(a), Self::CodeableConcept(b)) => a == b,
            (Self::Other(a, b), Self::Other(c, d)) => a == c && b.get() == d.get(),
            (Self::Resource(a), Self::Resource(b)) => a.get() == b.get(),
            (Self::Outcome(a), Self::Outcome(b)) => a == b,
            _ => false,
        }
    }
}

/// FHIR primitives that are JSON strings.
const TEXT_TYPES: &[&str] = &[
    "Base64Binary",
    "Canonical",
    "Code",
    "Date",
    "DateTime",
    "Id",
    "Instant",
    "Markdown",
    "Oid",
    "String",
    "Time",
    "Uri",
    "Url",
    "Uuid",
];
/// FHIR primitives that are JSON numbers.
const NUMBER_TYPES: &[&str] = &["Decimal", "Integer", "PositiveInt", "UnsignedInt"];

/// One item of `Parameters.parameter`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name of the parameter, not empty. Names in responses are static.
    pub name: Cow<'static, str>,
    /// The value or resource. `None` if the parameter has only parts.
    pub value: Option<Value>,
    /// Nested parameters.
    pub part: Vec<Parameter>,
    /// Extensions of an answer, as JSON. Those of a request are not read.
    pub extension: Vec<serde_json::Value>,
}

impl Parameter {
    /// Creates a parameter with a value.
    pub fn new(name: impl Into<Cow<'static, str>>, value: Value) -> Self {
        Self { name: name.into(), value: Some(value), part: Vec::new(), extension: Vec::new() }
    }

    /// Creates a parameter that consists of parts.
    pub fn of_parts(name: impl Into<Cow<'static, str>>, part: Vec<Self>) -> Self {
        Self { name: name.into(), value: None, part, extension: Vec::new() }
    }
}

/// A Parameters resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parameters {
    /// The parameters in order.
    pub parameter: Vec<Parameter>,
}

impl Parameters {
    /// Creates a resource without parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a Parameters resource.
    ///
    /// # Errors
    /// Returns one line that describes the defect and its position.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| error.to_string())
    }

    /// Parses a query string. Each pair becomes a parameter of type `String`.
    pub fn from_query(query: &str) -> Self {
        let parameter = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Parameter::new(decode_form(name), Value::Text("String", decode_form(value)))
        };
        Self { parameter: query.split('&').filter(|pair| !pair.is_empty()).map(parameter).collect() }
    }

    /// All parameters with this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Parameter> {
        self.parameter.iter().filter(move |p| p.name == name)
    }

    /// The first parameter with this name.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameter.iter().find(|p| p.name == name)
    }

    /// The first value with this name as text, for any primitive type.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)?.value.as_ref()? {
            Value::Text(_, text) => Some(text),
            _ => None,
        }
    }

    /// Appends a parameter.
    pub fn push(&mut self, name: impl Into<Cow<'static, str>>, value: Value) {
        self.parameter.push(Parameter::new(name, value));
    }

    /// Appends `valueBoolean`.
    pub fn push_boolean(&mut self, name: &'static str, value: bool) {
        self.push(name, Value::Boolean(value));
    }

    /// Appends `valueString`.
    pub fn push_string(&mut self, name: &'static str, value: impl Into<String>) {
        self.push(name, Value::Text("String", value.into()));
    }

    /// Appends `valueCode`.
    pub fn push_code(&mut self, name: &'static str, value: impl Into<String>) {
        self.push(name, Value::Text("Code", value.into()));
    }

    /// Appends `valueUri`.
    pub fn push_uri(&mut self, name: &'static str, value: impl Into<String>) {
        self.push(name, Value::Text("Uri", value.into()));
    }

    /// Appends `resource`, serialized to JSON.
    ///
    /// # Panics
    /// If `resource` cannot be serialized to JSON, which does not occur for the types of Trefoil.
    pub fn push_resource(&mut self, name: &'static str, resource: &impl serde::Serialize) {
        let json = serde_json::value::to_raw_value(resource)
            .expect("the caller passes types that serialize to JSON");
        self.push(name, Value::Resource(json));
    }

    /// Appends `resource`.
    pub fn push_outcome(&mut self, name: &'static str, outcome: OperationOutcome) {
        self.push(name, Value::Outcome(outcome));
    }
}

impl Json for Parameters {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.text("resourceType", Some("Parameters"));
        object.list("parameter", &self.parameter);
        object.end();
    }
}

impl Value {
    /// Writes the value as a member whose name contains its type.
    fn write_member(&self, object: &mut Object<'_>) {
        match self {
            Self::Boolean(value) => object.boolean("valueBoolean", Some(*value)),
            Self::Text(kind, value) => value.write(object.member(["value", kind])),
            Self::Number(kind, value) => {
                object.member(["value", kind]).extend_from_slice(value.0.as_bytes());
            }
            Self::Coding(value) => object.value("valueCoding", value),
            Self::CodeableConcept(value) => object.value("valueCodeableConcept", value),
            Self::Other(member, value) => object.value(member, value),
            Self::Resource(value) => object.value("resource", value),
            Self::Outcome(value) => object.value("resource", value),
        }
    }

    /// The JSON of an extension with this value.
    ///
    /// # Panics
    /// If the value is not valid JSON, which the types exclude.
    pub fn to_extension(&self, url: &str) -> Box<RawValue> {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object.text("url", Some(url));
        self.write_member(&mut object);
        object.end();
        let text = String::from_utf8(out).expect("JSON is UTF-8");
        RawValue::from_string(text).expect("the members are JSON")
    }
}

impl Json for Parameter {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.list("extension", &self.extension);
        object.text("name", Some(&self.name));
        if let Some(value) = &self.value {
            value.write_member(&mut object);
        }
        object.list("part", &self.part);
        object.end();
    }
}

serialize!(Parameters, Parameter);

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a Parameters resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut resource_type: Option<Text<'de>> = None;
                let mut parameter: Option<Vec<Parameter>> = None;
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    match &*member {
                        "resourceType" if resource_type.is_none() => resource_type = Some(map.next_value()?),
                        "parameter" if parameter.is_none() => parameter = Some(map.next_value()?),
                        "resourceType" | "parameter" => {
                            return Err(de::Error::custom(format!("member '{}' occurs twice", &*member)));
                        }
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                match resource_type.as_deref() {
                    Some("Parameters") => Ok(Parameters { parameter: parameter.unwrap_or_default() }),
                    Some(other) => {
                        Err(de::Error::custom(format!("resourceType is '{other}', not 'Parameters'")))
                    }
                    None => Err(de::Error::custom("resourceType 'Parameters' is missing")),
                }
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Parameter;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an item of Parameters.parameter")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameter, A::Error> {
                let mut name: Option<String> = None;
                let mut value: Option<Value> = None;
                let mut part: Option<Vec<Parameter>> = None;
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    // FHIR R4, Parameters inv-1: a parameter has a value, a resource or parts. Parts beside a
                    // value are accepted.
                    let kind = member.strip_prefix("value");
                    if (kind.is_some() || &*member == "resource") && value.is_some() {
                        return Err(de::Error::custom(format!(
                            "'{}' is a second value in one parameter",
                            &*member
                        )));
                    }
                    match (&*member, kind) {
                        ("name", _) => name = Some(map.next_value()?),
                        ("part", _) => part = Some(map.next_value()?),
                        ("resource", _) => value = Some(Value::Resource(map.next_value()?)),
                        (_, Some("Boolean")) => value = Some(Value::Boolean(map.next_value::<Bool>()?.0)),
                        (_, Some("Coding")) => value = Some(Value::Coding(map.next_value()?)),
                        (_, Some("CodeableConcept")) => {
                            value = Some(Value::CodeableConcept(map.next_value()?))
                        }
                        (_, Some(kind)) => {
                            value = Some(if let Some(kind) = known(TEXT_TYPES, kind) {
                                Value::Text(kind, map.next_value()?)
                            } else if let Some(kind) = known(NUMBER_TYPES, kind) {
                                Value::Number(kind, map.next_value()?)
                            } else if kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                                Value::Other(member.to_string(), map.next_value()?)
                            } else {
                                return Err(de::Error::custom(format!(
                                    "'{}' is not a type of FHIR",
                                    &*member
                                )));
                            });
                        }
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                let name = name
                    .filter(|name| !name.is_empty())
                    .ok_or_else(|| de::Error::custom("a parameter has no name"))?;
                Ok(Parameter { value, ..Parameter::of_parts(name, part.unwrap_or_default()) })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A JSON boolean, or `true` or `false` as a string, because some clients send all primitives as strings.
struct Bool(bool);

impl<'de> Deserialize<'de> for Bool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Bool;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a boolean")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Bool, E> {
                Ok(Bool(value))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bool, E> {
                match text {
                    "true" => Ok(Bool(true)),
                    "false" => Ok(Bool(false)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn known(list: &'static [&'static str], kind: &str) -> Option<&'static str> {
    list.iter().copied().find(|candidate| *candidate == kind)
}

/// Decodes a name or value of a query (WHATWG URL, application/x-www-form-urlencoded). Copies what lies
/// between the escapes as a whole: many requests consist of little else.
fn decode_form(text: &str) -> String {
    let mut rest = text.as_bytes();
    let Some(mut length) = memchr::memchr2(b'%', b'+', rest) else { return text.to_owned() };
    let mut out = Vec::with_capacity(rest.len());
    loop {
        let (plain, after) = rest.split_at(length);
        out.extend_from_slice(plain);
        let (byte, taken) = match after {
            [] => break,
            [b'+', ..] => (b' ', 1),
            [b'%', high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            [other, ..] => (*other, 1),
        };
        out.push(byte);
        rest = &after[taken..];
        length = memchr::memchr2(b'%', b'+', rest).unwrap_or(rest.len());
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_query_is_decoded_as_the_standard_says(
            query in "([a%+=&é]|%[0-9a-fA-F]{2}|%[cCeE][0-9a-fA-F]){0,20}",
        ) {
            let expected: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
            let text = |one: Parameter| match one.value {
                Some(Value::Text(_, text)) => (one.name.into_owned(), text),
                other => panic!("{other:?}"),
            };
            let own: Vec<_> = Parameters::from_query(&query).parameter.into_iter().map(text).collect();
            prop_assert_eq!(own, expected);
        }
    }

    fn round(json: &str) -> String {
        serde_json::to_string(&Parameters::from_json(json.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn parameters_are_written_as_they_were_parsed() {
        for json in [
            r#"{"resourceType":"Parameters"}"#,
            r#"{"resourceType":"Parameters","parameter":[{"name":"result","valueBoolean":true}]}"#,
            r#"{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":{"system":"s","code":"c"}}]}"#,
            r#"{"resourceType":"Parameters","parameter":[{"name":"n","valueInteger":12},{"name":"o","valuePeriod":{"start":"2026"}}]}"#,
            r#"{"resourceType":"Parameters","parameter":[{"name":"p","part":[{"name":"q","valueCode":"x"}]},{"name":"r","resource":{"resourceType":"Basic"}}]}"#,
        ] {
            assert_eq!(round(json), json);
        }
    }

    #[test]
    fn defects_are_described() {
        for (json, text) in [
            ("{}", "resourceType 'Parameters' is missing"),
            (r#"{"resourceType":"Patient"}"#, "resourceType is 'Patient'"),
            ("[]", "expected a Parameters resource"),
            ("", "EOF"),
            (r#"{"resourceType":"Parameters","parameter":[{"valueCode":"x"}]}"#, "has no name"),
            (
                r#"{"resourceType":"Parameters","parameter":[{"name":"a","valueCode":"x","valueUri":"y"}]}"#,
                "second value",
            ),
            (
                r#"{"resourceType":"Parameters","parameter":[{"name":"a","valueBoolean":"yes"}]}"#,
                "expected a boolean",
            ),
        ] {
            let error = Parameters::from_json(json.as_bytes()).unwrap_err();
            assert!(error.contains(text), "{json}: {error}");
        }
    }

    #[test]
    fn a_query_string_is_decoded_once() {
        let read = Parameters::from_query("codeA=a%2525b&codeB=c+d&codeA=x");
        assert_eq!(read.text("codeA"), Some("a%25b"));
        assert_eq!(read.text("codeB"), Some("c d"));
        assert_eq!(read.all("codeA").count(), 2);
    }
}
