//! Units of measure by the grammar of UCUM 2.2, case-sensitive, with its atoms and prefixes.
//!
//! The property `canonical` is the dimension of a unit in the base units of UCUM, sorted, so that a value set
//! can filter by it: `mm[Hg]` is `g.m-1.s-2`. An arbitrary unit is its own base unit. The property `property`
//! is the quantity that a base unit measures; all units that are comparable to the base unit have it (FHIR
//! R4, Using UCUM with FHIR).

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
    /// The longest first: `da` precedes `d`.
    prefixes: Vec<&'static str>,
}

static TABLE: LazyLock<UnitTable> = LazyLock::new(|| {
    let mut table = UnitTable { atoms: HashMap::new(), prefixes: Vec::new() };
    for row in table_rows(include_str!("../../data/units.tsv")) {
        let (code, flags, definition) = match row[..] {
            ["prefix", prefix] => {
                table.prefixes.push(prefix);
                continue;
            }
            ["base", code, property] => (code, "m", UnitDefinition::Base(property)),
            ["unit", code, flags, _] if flags.contains('a') => (code, flags, UnitDefinition::Arbitrary),
            ["unit", code, flags, definition] => (code, flags, UnitDefinition::Derived(definition)),
            _ => unreachable!("the table has three kinds of rows"),
        };
        let [metric, special] = ['m', 's'].map(|flag| flags.contains(flag));
        table.atoms.insert(code, UnitAtom { metric, special, definition, dimension: OnceLock::new() });
    }
    table.prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
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
                parse_dimension(definition).expect("a definition of the table is a unit")
            }
        })
    }
}

pub(super) fn parse_unit(code: &str) -> Result<ParsedCode, String> {
    let canonical = canonical(code)?;
    let measured = TABLE.atoms.get(&*canonical).and_then(|atom| match atom.definition {
        UnitDefinition::Base(property) => Some(("property", property.to_owned())),
        _ => None,
    });
    let properties = std::iter::once((CANONICAL, canonical)).chain(measured).collect();
    Ok(ParsedCode { code: code.to_owned(), display: None, properties })
}

/// The dimension of a unit, which all comparable units share.
pub(super) fn canonical(code: &str) -> Result<String, String> {
    let dimension = parse_dimension(code)?;
    let factor = |(base, exponent): (&String, &i32)| match exponent {
        1 => base.clone(),
        other => format!("{base}{other}"),
    };
    let factors: Vec<_> = dimension.iter().map(factor).collect();
    Ok(if factors.is_empty() { "1".to_owned() } else { factors.join(".") })
}

fn parse_dimension(code: &str) -> Result<UnitDimension, String> {
    if code.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut reader = UnitParser { rest: code, depth: 0 };
    let dimension = reader.parse_term()?;
    if !reader.rest.is_empty() {
        return Err(format!("'{}' is not allowed here", reader.rest));
    }
    Ok(dimension)
}

struct UnitParser<'a> {
    rest: &'a str,
    depth: usize,
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
    fn parse_term(&mut self) -> Result<UnitDimension, String> {
        let inverse = self.consume('/');
        let mut out = UnitDimension::new();
        multiply(&mut out, self.parse_component()?, if inverse { -1 } else { 1 })?;
        loop {
            let sign = match self.rest.chars().next() {
                Some('.') => 1,
                Some('/') => -1,
                _ => return Ok(out),
            };
            self.rest = &self.rest[1..];
            multiply(&mut out, self.parse_component()?, sign)?;
        }
    }

    /// Parses a unit with exponent and annotation, a number, an annotation, or a term in parentheses.
    fn parse_component(&mut self) -> Result<UnitDimension, String> {
        if self.consume('(') {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err(format!("parentheses are nested deeper than {DEPTH}"));
            }
            let inner = self.parse_term()?;
            if !self.consume(')') {
                return Err("a parenthesis is not closed".to_owned());
            }
            self.depth -= 1;
            return Ok(inner);
        }
        if self.rest.starts_with('{') {
            self.skip_annotation()?;
            return Ok(UnitDimension::new());
        }
        let symbol = self.next_symbol()?;
        let dimension = if symbol.bytes().all(|b| b.is_ascii_digit()) {
            if symbol.bytes().all(|b| b == b'0') {
                return Err("a factor must not be zero".to_owned());
            }
            UnitDimension::new()
        } else {
            parse_symbol(symbol)?
        };
        if self.rest.starts_with('{') {
            self.skip_annotation()?;
        }
        Ok(dimension)
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

    fn skip_annotation(&mut self) -> Result<(), String> {
        let Some(end) = self.rest.find('}') else { return Err("an annotation is not closed".to_owned()) };
        let text = &self.rest[1..end];
        if text.contains('{') || !text.bytes().all(|b| matches!(b, b'!'..=b'~')) {
            return Err(format!(
                "'{text}' is not an annotation: only visible ASCII without braces is allowed"
            ));
        }
        self.rest = &self.rest[end + 1..];
        Ok(())
    }
}

/// Parses a unit with an optional exponent.
fn parse_symbol(symbol: &str) -> Result<UnitDimension, String> {
    // Some atoms end in digits, so the whole symbol is tried first.
    if let Some(symbol_atom) = find_atom(symbol) {
        return Ok(symbol_atom.atom.dimension(symbol_atom.code).clone());
    }
    let unknown = || format!("'{symbol}' is not a unit");
    let name = symbol.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = if name.len() < symbol.len() { name.strip_suffix(['+', '-']).unwrap_or(name) } else { name };
    let exponent: i32 = symbol[name.len()..].parse().map_err(|_| unknown())?;
    let symbol_atom = find_atom(name).ok_or_else(unknown)?;
    if symbol_atom.atom.special {
        return Err(format!("'{name}' takes no exponent"));
    }
    let mut out = UnitDimension::new();
    multiply(&mut out, symbol_atom.atom.dimension(symbol_atom.code).clone(), exponent)?;
    Ok(out)
}

/// An atom without its prefix.
struct FoundAtom {
    code: &'static str,
    atom: &'static UnitAtom,
}

/// The atom of a symbol, which begins with a prefix if the atom is metric.
fn find_atom(symbol: &str) -> Option<FoundAtom> {
    let find = |code: &str| TABLE.atoms.get_key_value(code).map(|(code, atom)| FoundAtom { code, atom });
    find(symbol).or_else(|| {
        let mut atoms = TABLE.prefixes.iter().filter_map(|prefix| find(symbol.strip_prefix(prefix)?));
        atoms.find(|found| found.atom.metric)
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
            let word = parse_unit(code).unwrap_or_else(|why| panic!("{code}: {why}"));
            assert_eq!(word.properties[0].1, canonical, "{code}");
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
        for (code, why) in [
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
            ("m{a b}", "is not an annotation"),
            ("m{x}{y}", "is not allowed here"),
            ("Cel2", "takes no exponent"),
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
            assert!(error.contains(why), "{code}: {error}");
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
