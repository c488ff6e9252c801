//! Units of measure by the grammar of UCUM 2.2, case-sensitive, with its atoms and prefixes.
//!
//! The property `canonical` is the dimension of a unit in the base units of UCUM, sorted, so that a value set
//! can filter by it: `mm[Hg]` is `g.m-1.s-2`. An arbitrary unit is its own base unit. The property `property`
//! is the quantity that a base unit measures; all units that are comparable to the base unit have it (FHIR
//! R4, Using UCUM with FHIR).
//!
//! The display is composed of UCUM's names: `milligram per deciliter`. UCUM has no official displays, so that
//! any display of a unit is right. Blanks in an annotation and an annotation after a parenthesis, as the
//! value set of common units of FHIR R4 has them, are not in the grammar, and accepted with a remark.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, OnceLock};

use super::parsed_code::{ParsedCode, table_rows};

pub(crate) const PROPERTIES: &[&str] = &[CANONICAL, "property"];
pub(super) const CANONICAL: &str = "canonical";

/// Maximum depth of parentheses.
const DEPTH: usize = 32;

/// An atom of the table. A metric atom takes prefixes. A special one (degrees Celsius, logarithms) has its
/// own scale and takes no exponent.
struct UnitAtom {
    name: &'static str,
    metric: bool,
    special: bool,
    definition: UnitDefinition,
    /// The dimension of the definition, computed at the first use.
    dimension: OnceLock<UnitDimension>,
}

enum UnitDefinition {
    /// A base unit, with the quantity that it measures.
    Base(&'static str),
    /// An arbitrary unit, which is comparable only to itself.
    Arbitrary,
    /// A unit that is comparable to another unit.
    Derived(&'static str),
}

type UnitDimension = BTreeMap<String, i32>;

/// The atoms and prefixes of UCUM.
struct UnitTable {
    atoms: HashMap<&'static str, UnitAtom>,
    /// Codes and names, the longest code first: `da` precedes `d`.
    prefixes: Vec<[&'static str; 2]>,
}

static TABLE: LazyLock<UnitTable> = LazyLock::new(|| {
    let mut table = UnitTable { atoms: HashMap::new(), prefixes: Vec::new() };
    for row in table_rows(include_str!("../../data/units.tsv")) {
        let (code, flags, definition, name) = match row[..] {
            ["prefix", code, name] => {
                table.prefixes.push([code, name]);
                continue;
            }
            ["base", code, property, name] => (code, "m", UnitDefinition::Base(property), name),
            ["unit", code, flags, _, name] if flags.contains('a') => {
                (code, flags, UnitDefinition::Arbitrary, name)
            }
            ["unit", code, flags, definition, name] => {
                (code, flags, UnitDefinition::Derived(definition), name)
            }
            _ => unreachable!("the table has three kinds of rows"),
        };
        let [metric, special] = ['m', 's'].map(|flag| flags.contains(flag));
        table.atoms.insert(code, UnitAtom { name, metric, special, definition, dimension: OnceLock::new() });
    }
    table.prefixes.sort_by_key(|[code, _]| std::cmp::Reverse(code.len()));
    table
});

impl UnitAtom {
    /// The dimension of the atom with this code.
    fn dimension(&self, code: &str) -> &UnitDimension {
        self.dimension.get_or_init(|| match self.definition {
            UnitDefinition::Base(_) | UnitDefinition::Arbitrary => {
                UnitDimension::from([(code.to_owned(), 1)])
            }
            UnitDefinition::Derived(definition) => {
                parse(definition).expect("a definition of the table is a unit").dimension
            }
        })
    }
}

pub(super) fn parse_unit(code: &str) -> Result<ParsedCode, String> {
    let unit = parse(code)?;
    let canonical = canonical_of(&unit.dimension);
    let property = TABLE.atoms.get(&*canonical).and_then(|atom| match atom.definition {
        UnitDefinition::Base(property) => Some(("property", property.to_owned())),
        _ => None,
    });
    let properties = std::iter::once((CANONICAL, canonical)).chain(property).collect();
    Ok(ParsedCode { code: code.to_owned(), display: Some(unit.name), other_displays: Vec::new(), properties })
}

/// The dimension of a unit, which all comparable units share.
pub(super) fn canonical(code: &str) -> Result<String, String> {
    Ok(canonical_of(&parse(code)?.dimension))
}

/// Says where a unit does not follow the grammar, although it is accepted.
pub(super) fn remark(code: &str) -> Option<String> {
    parse(code).ok()?.remark
}

fn canonical_of(dimension: &UnitDimension) -> String {
    let factor = |(base, exponent): (&String, &i32)| match exponent {
        1 => base.clone(),
        other => format!("{base}{other}"),
    };
    let factors: Vec<_> = dimension.iter().map(factor).collect();
    if factors.is_empty() { "1".to_owned() } else { factors.join(".") }
}

/// A unit, or a part of one.
#[derive(Debug, Default)]
struct ParsedUnit {
    dimension: UnitDimension,
    name: String,
    /// The code of a special unit: one with a scale of its own.
    special: Option<String>,
    remark: Option<String>,
}

fn parse(code: &str) -> Result<ParsedUnit, String> {
    if code.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut reader = UnitParser { rest: code, depth: 0, remark: None };
    let unit = reader.parse_term()?;
    if !reader.rest.is_empty() {
        return Err(format!("'{}' is not allowed here", reader.rest));
    }
    Ok(ParsedUnit { remark: reader.remark, ..unit })
}

struct UnitParser<'a> {
    rest: &'a str,
    depth: usize,
    remark: Option<String>,
}

impl<'a> UnitParser<'a> {
    fn consume(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Parses a term that may begin with `/`.
    fn parse_term(&mut self) -> Result<ParsedUnit, String> {
        let mut out = ParsedUnit::default();
        let mut sign = if self.consume('/') { -1 } else { 1 };
        let mut is_product = sign == -1;
        loop {
            let factor = self.parse_component()?;
            multiply(&mut out.dimension, factor.dimension, sign)?;
            let between = match (out.name.as_str(), sign) {
                ("", 1) => "",
                ("", _) => "per ",
                (_, 1) => " ",
                _ => " per ",
            };
            out.name = format!("{}{between}{}", out.name, factor.name);
            out.special = out.special.or(factor.special);
            sign = match self.rest.chars().next() {
                Some('.') => 1,
                Some('/') => -1,
                _ => break,
            };
            is_product = true;
            self.rest = &self.rest[1..];
        }
        match &out.special {
            Some(special) if is_product => {
                Err(format!("'{special}' has a scale of its own, and cannot be a factor of another unit"))
            }
            _ => Ok(out),
        }
    }

    /// Parses a unit with exponent and annotation, a number, an annotation, or a term in parentheses.
    fn parse_component(&mut self) -> Result<ParsedUnit, String> {
        if self.consume('(') {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err(format!("parentheses are nested deeper than {DEPTH}"));
            }
            let mut inner = self.parse_term()?;
            if !self.consume(')') {
                return Err("a parenthesis is not closed".to_owned());
            }
            self.depth -= 1;
            if inner.name.contains(" per ") {
                inner.name = format!("({})", inner.name);
            }
            if let Some(annotation) = self.take_annotation()? {
                inner.name = format!("{} {annotation}", inner.name);
                self.remark = Some("UCUM has no annotation after a parenthesis".to_owned());
            }
            return Ok(inner);
        }
        if let Some(annotation) = self.take_annotation()? {
            return Ok(ParsedUnit { name: annotation.to_owned(), ..ParsedUnit::default() });
        }
        let symbol = self.next_symbol()?;
        let mut unit = if symbol.bytes().all(|b| b.is_ascii_digit()) {
            if symbol.bytes().all(|b| b == b'0') {
                return Err("a factor must not be zero".to_owned());
            }
            ParsedUnit { name: symbol.to_owned(), ..ParsedUnit::default() }
        } else {
            parse_symbol(symbol)?
        };
        if let Some(annotation) = self.take_annotation()? {
            unit.name = format!("{} {annotation}", unit.name);
        }
        Ok(unit)
    }

    /// Returns everything up to the next operator outside of brackets.
    fn next_symbol(&mut self) -> Result<&'a str, String> {
        let mut inside = false;
        let is_end = |c: char| {
            inside = (inside || c == '[') && c != ']';
            !inside && matches!(c, '.' | '/' | '(' | ')' | '{' | '}') || !c.is_ascii_graphic()
        };
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (symbol, rest) = self.rest.split_at(end);
        if symbol.is_empty() {
            return Err(match rest.chars().next() {
                Some(c) => format!("expected a unit instead of '{c}'"),
                None => "a unit is missing at the end".to_owned(),
            });
        }
        self.rest = rest;
        Ok(symbol)
    }

    fn take_annotation(&mut self) -> Result<Option<&'a str>, String> {
        if !self.rest.starts_with('{') {
            return Ok(None);
        }
        let Some(end) = self.rest.find('}') else { return Err("an annotation is not closed".to_owned()) };
        let text = &self.rest[1..end];
        if text.contains('{') || !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
            return Err(format!(
                "'{text}' is not an annotation: only visible ASCII without braces is allowed"
            ));
        }
        if text.contains(' ') {
            self.remark = Some(format!("UCUM has no blanks in annotations such as '{text}'"));
        }
        self.rest = &self.rest[end + 1..];
        Ok(Some(text))
    }
}

/// Parses a unit with an optional exponent.
fn parse_symbol(symbol: &str) -> Result<ParsedUnit, String> {
    // Some atoms end in digits, so the whole symbol is tried first.
    if let Some(FoundAtom { code, atom, prefix }) = find_atom(symbol) {
        return Ok(ParsedUnit {
            dimension: atom.dimension(code).clone(),
            name: if POWERS_OF_TEN.contains(&code) {
                "10".to_owned()
            } else {
                format!("{prefix}{}", atom.name)
            },
            special: atom.special.then(|| symbol.to_owned()),
            remark: None,
        });
    }
    let unknown = || format!("'{symbol}' is not a unit");
    let name = symbol.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = if name.len() < symbol.len() { name.strip_suffix(['+', '-']).unwrap_or(name) } else { name };
    let exponent: i32 = symbol[name.len()..].parse().map_err(|_| unknown())?;
    let FoundAtom { code, atom, prefix } = find_atom(name).ok_or_else(unknown)?;
    if atom.special {
        return Err(format!("'{name}' takes no exponent"));
    }
    let mut dimension = UnitDimension::new();
    multiply(&mut dimension, atom.dimension(code).clone(), exponent)?;
    let name = match (exponent, atom.name) {
        _ if POWERS_OF_TEN.contains(&code) => format!("10^{exponent}"),
        (1, name) => format!("{prefix}{name}"),
        (2, name) => format!("square {prefix}{name}"),
        (3, name) => format!("cubic {prefix}{name}"),
        (_, name) => format!("{prefix}{name} to the power of {exponent}"),
    };
    Ok(ParsedUnit { dimension, name, ..ParsedUnit::default() })
}

/// The atoms of powers of ten.
const POWERS_OF_TEN: [&str; 2] = ["10*", "10^"];

/// An atom without its prefix.
struct FoundAtom {
    code: &'static str,
    atom: &'static UnitAtom,
    /// Name of the prefix, if there is one.
    prefix: &'static str,
}

/// The atom of a symbol, which begins with a prefix if the atom is metric.
fn find_atom(symbol: &str) -> Option<FoundAtom> {
    let find = |code: &str, prefix: &'static str| {
        TABLE.atoms.get_key_value(code).map(|(code, atom)| FoundAtom { code, atom, prefix })
    };
    find(symbol, "").or_else(|| {
        let mut atoms =
            TABLE.prefixes.iter().filter_map(|[code, name]| find(symbol.strip_prefix(code)?, name));
        atoms.find(|candidate| candidate.atom.metric)
    })
}

fn multiply(out: &mut UnitDimension, other: UnitDimension, exponent: i32) -> Result<(), String> {
    for (base, power) in other {
        let sum = out.entry(base.clone()).or_default();
        let more = power.checked_mul(exponent).and_then(|more| sum.checked_add(more));
        *sum = more.ok_or("an exponent is too large")?;
        if *sum == 0 {
            out.remove(&base);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_units_have_a_dimension() {
        for (code, canonical) in [
            ("m", "m"),
            ("mg", "g"),
            ("mg/dL", "g.m-3"),
            ("mm[Hg]", "g.m-1.s-2"),
            ("kg.m/s2", "g.m.s-2"),
            ("N", "g.m.s-2"),
            ("/min", "s-1"),
            ("{beats}/min", "s-1"),
            ("%", "1"),
            ("1", "1"),
            ("10*3/uL", "m-3"),
            ("10^-3.m", "m"),
            ("10*", "1"),
            ("[degF]", "K"),
            ("mCel", "K"),
            ("ug/(24.h)", "g.s-1"),
            ("m2/m2", "1"),
            ("umol{creatinine}/L", "m-3"),
            ("[iU]/mL", "[iU].m-3"),
            ("k[IU]/L", "[IU].m-3"),
            ("cal_[15]", "g.m2.s-2"),
            ("[in_i'H2O]", "g.m-1.s-2"),
            ("B[10.nV]", "C-1.g.m2.s-2"),
            ("a_j", "s"),
            ("mo", "s"),
            ("dar", "m2"),
            ("Pa", "g.m-1.s-2"),
            ("cd", "cd"),
            ("m-2", "m-2"),
            ("m+2", "m2"),
            ("L/(min.m2)", "m.s-1"),
            ("((m))", "m"),
            ("{score}", "1"),
            ("[pH]", "m-3"),
            ("mg%", "g.m-3"),
            ("mrad", "rad"),
            ("[m/s2/Hz^(1/2)]", "m2.s-3"),
            ("[NTU]", "1"),
            ("[MET]", "g-1.m3.s-1"),
            ("[car_Au]", "1"),
            ("B[SPL]", "g.m-1.s-2"),
            ("mol", "1"),
            ("[ppth]", "1"),
            ("bit_s", "1"),
            ("mL/kg/h", "g-1.m3.s-1"),
        ] {
            let word = parse_unit(code).unwrap_or_else(|reason| panic!("{code}: {reason}"));
            assert_eq!(word.properties[0].1, canonical, "{code}");
        }
    }

    #[test]
    fn units_have_displays() {
        for (code, display) in [
            ("mg/dL", "milligram per deciliter"),
            ("kg.m/s2", "kilogram meter per square second"),
            ("/min", "per minute"),
            ("{beats}/min", "beats per minute"),
            ("umol{creatinine}/L", "micromole creatinine per liter"),
            ("10*3/uL", "10^3 per microliter"),
            ("ug/(24.h)", "microgram per 24 hour"),
            ("mL/(min/m3)", "milliliter per (minute per cubic meter)"),
            ("[degF]", "degree Fahrenheit"),
            ("s-2", "second to the power of -2"),
            ("%", "percent"),
            ("1", "1"),
        ] {
            assert_eq!(parse_unit(code).unwrap().display.as_deref(), Some(display), "{code}");
        }
    }

    #[test]
    fn common_units_that_break_the_grammar_are_accepted_with_a_remark() {
        for (code, expected) in [
            ("{2 or 3 times}/d", Some("blanks in annotations such as '2 or 3 times'")),
            ("U/(10.g){feces}", Some("no annotation after a parenthesis")),
            ("U{25Cel}/L", None),
            ("Cel", None),
            ("mg/dL", None),
        ] {
            let remark = remark(code);
            match expected {
                Some(part) => assert!(remark.is_some_and(|text| text.contains(part)), "{code}"),
                None => assert_eq!(remark, None, "{code}"),
            }
            assert!(parse_unit(code).is_ok(), "{code}");
        }
    }

    #[test]
    fn each_definition_is_a_unit() {
        assert_eq!((TABLE.atoms.len(), TABLE.prefixes.len()), (312, 24));
        for (code, atom) in &TABLE.atoms {
            let bases = atom.dimension(code).keys();
            assert!(bases.into_iter().all(|base| find_atom(base).unwrap().code == base), "{code}");
        }
    }

    #[test]
    fn invalid_units_are_rejected_with_a_reason() {
        for (code, reason) in [
            ("", "empty"),
            ("mg/DL", "'DL' is not a unit"),
            ("milligram", "is not a unit"),
            ("mg/dl ", "is not allowed here"),
            ("mg//dL", "expected a unit instead of '/'"),
            ("mg/", "missing at the end"),
            ("m.", "missing at the end"),
            ("(m", "not closed"),
            ("m)", "is not allowed here"),
            ("m{x", "not closed"),
            ("m{ä}", "is not an annotation"),
            ("m{x}{y}", "is not allowed here"),
            ("Cel2", "takes no exponent"),
            ("Cel/h", "'Cel' has a scale of its own"),
            ("dB/m", "'dB' has a scale of its own"),
            ("/mCel", "cannot be a factor of another unit"),
            ("m.(Cel)", "cannot be a factor of another unit"),
            ("k[in_i]", "is not a unit"),
            ("kkg", "is not a unit"),
            ("0", "zero"),
            ("-1", "is not a unit"),
            ("m9999999999", "is not a unit"),
            ("µg", "expected a unit instead of"),
            ("mmHg", "is not a unit"),
            ("m99999.m2147483647", "too large"),
        ] {
            let error = parse_unit(code).unwrap_err();
            assert!(error.contains(reason), "{code}: {error}");
        }
        assert!(parse_unit(&"(".repeat(400)).unwrap_err().contains("nested deeper"));
    }

    #[test]
    fn atoms_are_not_split_into_prefix_and_atom() {
        // A symbol that is in the table is not split into prefix and atom.
        for code in ["cd", "Pa", "min", "mo", "ar", "d", "h", "pc", "kat", "dyn", "att", "a_t"] {
            assert_eq!(find_atom(code).unwrap().code, code);
        }
    }
}
