//! UCUM: units of measure by the grammar of its 1.9, case-sensitive, with its atoms and prefixes.
//!
//! The property `canonical` is the dimension of a unit in UCUM's base units, sorted, so that a value
//! set can filter by it: `mm[Hg]` is `g.m-1.s-2`. Arbitrary units have only themselves to stand for. The property
//! `property` is what a base unit measures; a unit has it that is comparable to one (FHIR R4, Using UCUM with FHIR).

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use super::{Word, rows};

/// The properties of a unit.
pub(super) const PROPERTIES: &[&str] = &[CANONICAL, "property"];
pub(super) const CANONICAL: &str = "canonical";

/// What each base unit measures.
const MEASURED: [(&str, &str); 7] = [
    ("C", "electric charge"),
    ("K", "temperature"),
    ("cd", "luminous intensity"),
    ("g", "mass"),
    ("m", "length"),
    ("rad", "plane angle"),
    ("s", "time"),
];

const PREFIXES: &[&str] = &[
    "da", "Ki", "Mi", "Gi", "Ti", "Q", "R", "Y", "Z", "E", "P", "T", "G", "M", "k", "h", "d", "c", "m", "u",
    "n", "p", "f", "a", "z", "y", "r", "q",
];

/// How deep parentheses may be nested.
const DEPTH: usize = 32;

/// What the table says of an atom: metric atoms take prefixes, special ones (degrees Celsius,
/// logarithms) stand on a scale of their own and take no exponent.
struct Atom {
    metric: bool,
    special: bool,
    dimension: Dimension,
}

/// Exponents of the base units.
type Dimension = BTreeMap<String, i32>;

static ATOMS: LazyLock<HashMap<&'static str, Atom>> = LazyLock::new(|| {
    let mut atoms = HashMap::new();
    for row in rows(include_str!("data/units.tsv")) {
        for code in row[2].split(' ') {
            let dimension = match row[1] {
                "1" => Dimension::new(),
                "!" => Dimension::from([(code.to_owned(), 1)]),
                text => text.split('.').map(base).collect(),
            };
            let has = |flag| row[0].contains(flag);
            atoms.insert(code, Atom { metric: has('m'), special: has('s'), dimension });
        }
    }
    atoms
});

/// A factor of a dimension in the table, such as `s-2`.
fn base(factor: &str) -> (String, i32) {
    let at = factor.find(|c: char| c == '-' || c.is_ascii_digit()).unwrap_or(factor.len());
    (factor[..at].to_owned(), factor[at..].parse().unwrap_or(1))
}

/// Reads a unit.
pub(super) fn read(code: &str) -> Result<Word, String> {
    let canonical = canonical(code)?;
    let measured = MEASURED.iter().find(|(base, _)| *base == canonical);
    let measured = measured.map(|(_, property)| ("property", (*property).to_owned()));
    let properties = std::iter::once((CANONICAL, canonical)).chain(measured).collect();
    Ok(Word { code: code.to_owned(), display: None, properties })
}

/// The dimension of a unit, which comparable ones share.
pub(super) fn canonical(code: &str) -> Result<String, String> {
    if code.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut reader = Reader { rest: code, depth: 0 };
    let dimension = reader.main_term()?;
    if !reader.rest.is_empty() {
        return Err(format!("'{}' cannot stand there", reader.rest));
    }
    let factor = |(base, exponent): (&String, &i32)| match exponent {
        1 => base.clone(),
        other => format!("{base}{other}"),
    };
    let factors: Vec<_> = dimension.iter().map(factor).collect();
    Ok(if factors.is_empty() { "1".to_owned() } else { factors.join(".") })
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// A term that may begin with `/`.
    fn main_term(&mut self) -> Result<Dimension, String> {
        let inverse = self.takes('/');
        let mut out = Dimension::new();
        multiply(&mut out, self.component()?, if inverse { -1 } else { 1 })?;
        loop {
            let sign = match self.rest.chars().next() {
                Some('.') => 1,
                Some('/') => -1,
                _ => return Ok(out),
            };
            self.rest = &self.rest[1..];
            multiply(&mut out, self.component()?, sign)?;
        }
    }

    /// A unit with exponent and annotation, a number, an annotation, or a term in parentheses.
    fn component(&mut self) -> Result<Dimension, String> {
        if self.takes('(') {
            self.depth += 1;
            if self.depth > DEPTH {
                return Err(format!("parentheses are nested deeper than {DEPTH}"));
            }
            let inner = self.main_term()?;
            if !self.takes(')') {
                return Err("a parenthesis is not closed".to_owned());
            }
            self.depth -= 1;
            return Ok(inner);
        }
        if self.rest.starts_with('{') {
            self.annotation()?;
            return Ok(Dimension::new());
        }
        let symbol = self.symbol()?;
        let dimension = if symbol.bytes().all(|b| b.is_ascii_digit()) {
            if symbol.bytes().all(|b| b == b'0') {
                return Err("zero is no factor".to_owned());
            }
            Dimension::new()
        } else {
            unit(symbol)?
        };
        if self.rest.starts_with('{') {
            self.annotation()?;
        }
        Ok(dimension)
    }

    /// Everything up to the next operator outside of brackets.
    fn symbol(&mut self) -> Result<&'a str, String> {
        let mut inside = false;
        let is_end = |c: char| {
            inside = (inside || c == '[') && c != ']';
            !inside && matches!(c, '.' | '/' | '(' | ')' | '{' | '}') || !c.is_ascii_graphic()
        };
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        let (symbol, rest) = self.rest.split_at(end);
        if symbol.is_empty() {
            return Err(match rest.chars().next() {
                Some(c) => format!("'{c}' stands where a unit is needed"),
                None => "a unit is missing at the end".to_owned(),
            });
        }
        self.rest = rest;
        Ok(symbol)
    }

    fn annotation(&mut self) -> Result<(), String> {
        let Some(end) = self.rest.find('}') else { return Err("an annotation is not closed".to_owned()) };
        let text = &self.rest[1..end];
        if text.contains('{') || !text.bytes().all(|b| matches!(b, b'!'..=b'~')) {
            return Err(format!("'{text}' is no annotation: only visible ASCII without braces"));
        }
        self.rest = &self.rest[end + 1..];
        Ok(())
    }
}

/// A unit with its exponent, if any.
fn unit(symbol: &str) -> Result<Dimension, String> {
    // Some atoms end in digits, so the whole is tried first.
    if let Some((atom, _)) = simple(symbol) {
        return Ok(atom.dimension.clone());
    }
    let unknown = || format!("'{symbol}' is no unit");
    let name = symbol.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = if name.len() < symbol.len() { name.strip_suffix(['+', '-']).unwrap_or(name) } else { name };
    let exponent: i32 = symbol[name.len()..].parse().map_err(|_| unknown())?;
    let (atom, _) = simple(name).ok_or_else(unknown)?;
    if atom.special {
        return Err(format!("'{name}' takes no exponent"));
    }
    let mut out = Dimension::new();
    multiply(&mut out, atom.dimension.clone(), exponent)?;
    Ok(out)
}

/// An atom, with a prefix where it is metric.
fn simple(symbol: &str) -> Option<(&'static Atom, Option<&'static str>)> {
    if let Some(atom) = ATOMS.get(symbol) {
        return Some((atom, None));
    }
    PREFIXES.iter().find_map(|prefix| {
        let atom = ATOMS.get(symbol.strip_prefix(prefix)?)?;
        atom.metric.then_some((atom, Some(*prefix)))
    })
}

fn multiply(out: &mut Dimension, other: Dimension, exponent: i32) -> Result<(), String> {
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
    fn good_units_have_a_dimension() {
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
            ("[pH]", "1"),
            ("mL/kg/h", "g-1.m3.s-1"),
        ] {
            let word = read(code).unwrap_or_else(|why| panic!("{code}: {why}"));
            assert_eq!(word.properties[0].1, canonical, "{code}");
        }
    }

    #[test]
    fn bad_units_are_refused_with_a_reason() {
        for (code, why) in [
            ("", "empty"),
            ("mg/DL", "'DL' is no unit"),
            ("milligram", "is no unit"),
            ("mg/dl ", "cannot stand there"),
            ("mg//dL", "'/' stands where a unit is needed"),
            ("mg/", "missing at the end"),
            ("m.", "missing at the end"),
            ("(m", "not closed"),
            ("m)", "cannot stand there"),
            ("m{x", "not closed"),
            ("m{ä}", "is no annotation"),
            ("m{a b}", "is no annotation"),
            ("m{x}{y}", "cannot stand there"),
            ("Cel2", "takes no exponent"),
            ("k[in_i]", "is no unit"),
            ("kkg", "is no unit"),
            ("0", "zero"),
            ("-1", "is no unit"),
            ("m9999999999", "is no unit"),
            ("µg", "stands where a unit is needed"),
            ("mmHg", "is no unit"),
            ("m99999.m2147483647", "too large"),
        ] {
            let error = read(code).unwrap_err();
            assert!(error.contains(why), "{code}: {error}");
        }
        assert!(read(&"(".repeat(400)).unwrap_err().contains("nested deeper"));
    }

    #[test]
    fn no_prefixed_unit_is_an_atom_of_another_meaning_by_chance() {
        // What the table holds whole is never read as prefix and atom.
        for code in ["cd", "Pa", "min", "mo", "ar", "d", "h", "pc", "kat", "dyn", "att", "a_t"] {
            if let Some((_, prefix)) = simple(code) {
                assert_eq!(prefix, None, "{code}");
            }
        }
    }
}
