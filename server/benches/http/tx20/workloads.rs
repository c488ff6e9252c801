//! The workloads: those of the public benchmark by their ids, and further ones.

use fastrand::Rng;
use serde_json::{Value, json};
use trefoil_fixtures::polyhierarchy::Polyhierarchy;
use trefoil_fixtures::rf2_release::{self, ATTRIBUTES, MAP_SET, REFERENCE_SET};

use super::data::{
    CLASSES, DRUGS, LOINC, LOINC_CODES, MAP, RXNORM, RXNORM_CODES, SNOMED_CT, VALUE_SETS, loinc_code,
    loinc_display, rxnorm_code, value_set_url,
};

/// A workload: requests of one kind.
pub(super) struct Workload {
    /// Id in the public benchmark. Empty for a workload of our own.
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// Status of the answers.
    pub(super) status: &'static str,
    /// Requests a second that the benchmark published for these servers.
    pub(super) published: [Option<f64>; 4],
    make: fn(&mut Random) -> String,
}

/// Names of the servers with published rates.
pub(super) const SERVERS: [&str; 4] = ["termbox", "fhirsmith", "Ontoserver", "Snowstorm"];

impl Workload {
    /// Makes a number of requests.
    pub(super) fn requests(&self, hierarchy: &Polyhierarchy, count: usize) -> Vec<String> {
        let mut random = Random { hierarchy, numbers: Rng::with_seed(7) };
        (0..count).map(|_| (self.make)(&mut random)).collect()
    }
}

/// Makes random requests.
struct Random<'a> {
    hierarchy: &'a Polyhierarchy,
    numbers: Rng,
}

/// All workloads.
///
/// The published rates are those of round 0 of the benchmark (24 March 2026): the highest of 1,
/// 10 and 50 connections on an Apple M3 with 8 cores, with the real releases. A server without a rate failed
/// or did not run the workload.
pub(super) fn workloads() -> Vec<Workload> {
    let public = |id, name, published: [f64; 4], make| Workload {
        id,
        name,
        status: if id == "LK05" { "404" } else { "200" },
        published: published.map(|rate| (rate > 0.0).then_some(rate)),
        make,
    };
    let own = |name, make| Workload { id: "", name, status: "200", published: [None; 4], make };
    vec![
        public("FS01", "search by url", [3_513.0, 319.0, 3.7, 0.0], |random| match random.below(2) {
            0 => get("CodeSystem", &[("url", random.of(&[LOINC, RXNORM]))]),
            _ => get("ValueSet", &[("url", &random.value_set()), ("version", "1")]),
        }),
        public("LK01", "$lookup: SNOMED CT", [6_720.0, 5_688.0, 754.0, 58.0], |random| {
            lookup(SNOMED_CT, &random.concept(), &[])
        }),
        public("LK02", "$lookup: LOINC", [6_562.0, 1_570.0, 1_329.0, 0.0], |random| {
            lookup(LOINC, &loinc_code(random.below(LOINC_CODES)), &[])
        }),
        public("LK03", "$lookup: a small code system of FHIR", [8_296.0, 4_842.0, 1_435.0, 0.0], |random| {
            let system = "http://hl7.org/fhir/administrative-gender";
            lookup(system, random.of(&["male", "female", "other", "unknown"]), &[("version", "4.0.1")])
        }),
        public("LK04", "$lookup: RxNorm", [8_419.0, 2_032.0, 1_274.0, 0.0], |random| {
            lookup(RXNORM, &random.drug(), &[])
        }),
        public("LK05", "$lookup: unknown codes", [7_308.0, 5_587.0, 3_341.0, 530.0], |random| {
            lookup(SNOMED_CT, &format!("99997{}", random.concept()), &[])
        }),
        public("VC01", "$validate-code: SNOMED CT", [2_754.0, 6_796.0, 826.0, 161.0], |random| {
            validate(&implicit(""), &random.concept(), &[])
        }),
        public("VC02", "$validate-code: with display", [2_717.0, 6_286.0, 817.0, 154.0], |random| {
            let at = random.number();
            validate(&implicit(""), &rf2_release::code(at), &[("display", &rf2_release::term(at))])
        }),
        public("VC03", "$validate-code: descendants", [1_764.0, 1_225.0, 808.0, 166.0], |random| {
            let url = implicit(&format!("isa/{}", random.broad()));
            validate(&url, &random.concept(), &[])
        }),
        public("EX01", "$expand: descendants, pages", [175.0, 112.0, 151.0, 11.0], |random| {
            let url = implicit(&format!("isa/{}", random.broad()));
            let (count, offset) = (random.of(&["10", "100", "1000"]), random.of(&["0", "20", "200"]));
            get("ValueSet/$expand", &[("url", &url), ("count", count), ("offset", offset)])
        }),
        public("EX02", "$expand: filters of the hierarchy", [731.0, 124.0, 550.0, 0.0], |random| {
            let filter = match random.below(2) {
                0 => filter("concept", "descendent-of", &random.broad()),
                _ => filter("concept", "generalizes", &random.concept()),
            };
            expand(&[(SNOMED_CT, vec![filter])], None, 100)
        }),
        public("EX03", "$expand: SNOMED CT by text", [245.0, 3.0, 6.1, 19.0], |random| {
            let number = random.below(5_000);
            let count = random.of(&["20", "100"]);
            let url = implicit("");
            let text = rf2_release::word(number);
            get("ValueSet/$expand", &[("url", &url), ("filter", &text), ("count", count)])
        }),
        public("EX04", "$expand: listed codes", [175.0, 53.0, 13.0, 0.0], |random| {
            let count = random.of(&["10", "100", "1000"]);
            get("ValueSet/$expand", &[("url", &random.value_set()), ("count", count)])
        }),
        public("EX05", "$expand: is-a and an attribute", [927.0, 0.0, 337.0, 0.0], |random| {
            let attribute = random.of(&ATTRIBUTES);
            let value = random.concept();
            let below = filter("concept", "is-a", &random.broad());
            match random.below(3) {
                0 => expand(&[(SNOMED_CT, vec![below, filter(attribute, "=", &value)])], None, 10),
                1 => expand(&[(SNOMED_CT, vec![filter(attribute, "=", &value)])], None, 10),
                _ => {
                    let other = filter(attribute, "=", &value);
                    expand(&[(SNOMED_CT, vec![below]), (SNOMED_CT, vec![other])], None, 10)
                }
            }
        }),
        public("EX06", "$expand: filters of RxNorm", [837.0, 0.0, 782.0, 0.0], |random| {
            let ingredient = rxnorm_code(random.below(RXNORM_CODES / DRUGS) * DRUGS);
            let kind = filter("TTY", "=", random.of(&["BN", "SBD", "SCD"]));
            expand(&[(RXNORM, vec![filter("tradename_of", "=", &ingredient), kind])], None, 10)
        }),
        public("EX07", "$expand: several systems by text", [546.0, 0.0, 16.0, 0.0], |random| {
            let systems: &[&str] = match random.below(4) {
                0 => &[SNOMED_CT, LOINC, RXNORM],
                1 => &[SNOMED_CT, LOINC],
                2 => &[SNOMED_CT, RXNORM],
                _ => &[LOINC, RXNORM],
            };
            let includes: Vec<_> = systems.iter().map(|system| (*system, Vec::new())).collect();
            let count = [10, 200, 400][random.below(3) as usize];
            expand(&includes, Some(&rf2_release::word(random.below(1_000))), count)
        }),
        public("EX08", "$expand: is-a, an attribute and text", [861.0, 0.0, 13.0, 0.0], |random| {
            let filters = vec![
                filter("concept", "is-a", &random.broad()),
                filter(ATTRIBUTES[0], "=", &random.concept()),
            ];
            expand(&[(SNOMED_CT, filters)], Some(&rf2_release::word(random.below(100))), 10)
        }),
        public("SS01", "$subsumes", [7_026.0, 7_846.0, 508.0, 256.0], |random| {
            let (a, b) = (random.broad(), random.concept());
            get("CodeSystem/$subsumes", &[("system", SNOMED_CT), ("codeA", &a), ("codeB", &b)])
        }),
        public("CM01", "$translate: a map of SNOMED CT", [0.0, 0.0, 583.0, 0.0], |random| {
            let url = format!("{SNOMED_CT}?fhir_cm={MAP_SET}");
            translate(&url, SNOMED_CT, &random.concept())
        }),
        public("CM02", "$translate: a ConceptMap", [0.0, 0.0, 1_198.0, 0.0], |random| {
            translate(MAP, RXNORM, &random.drug())
        }),
        own("$lookup: en-GB, three properties", |random| {
            let properties = [("displayLanguage", "en-GB"), ("property", "parent"), ("property", "child")];
            let code = random.concept();
            lookup(SNOMED_CT, &code, &[&properties[..], &[("property", ATTRIBUTES[0])]].concat())
        }),
        own("$lookup: POST of a coding", |random| {
            let coding = json!({ "system": SNOMED_CT, "code": random.concept() });
            post("CodeSystem/$lookup", json!([{ "name": "coding", "valueCoding": coding }]))
        }),
        own("$validate-code: listed codes", |random| {
            let (url, code) = (random.value_set(), random.drug());
            get("ValueSet/$validate-code", &[("url", &url), ("system", RXNORM), ("code", &code)])
        }),
        own("$validate-code: code and display of LOINC", |random| {
            let number = random.below(LOINC_CODES);
            let (code, display) = (loinc_code(number), loinc_display(number));
            get("CodeSystem/$validate-code", &[("url", LOINC), ("code", &code), ("display", &display)])
        }),
        own("$expand: descendants, first 100", |random| {
            let url = implicit(&format!("isa/{}", random.broad()));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        own("$expand: begins of two words, 20", |random| {
            let term = rf2_release::term(random.number());
            let words: Vec<&str> = term.split(' ').map(|word| &word[..word.len().min(4)]).take(2).collect();
            expand_text(&implicit(""), &words.join(" "))
        }),
        own("$expand: descendants, one word, 20", |random| {
            let url = implicit(&format!("isa/{}", random.broad()));
            expand_text(&url, &rf2_release::word(random.below(500)))
        }),
        own("$expand: ECL with a refinement, 100", |random| {
            let (focus, value) = (random.broad(), random.broad());
            let url = implicit(&format!("ecl/< {focus} : {} = << {value}", ATTRIBUTES[0]));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        own("$expand: ECL: AND, MINUS, a reference set", |random| {
            let (focus, without) = (random.broad(), random.broad());
            let url = implicit(&format!("ecl/(< {focus} MINUS << {without}) AND ^ {REFERENCE_SET}"));
            get("ValueSet/$expand", &[("url", &url), ("count", "100")])
        }),
        own("$expand: three filters of LOINC", |random| {
            let class = format!("CLASS-{}", random.below(CLASSES));
            let filters = vec![
                filter("CLASS", "=", &class),
                filter("STATUS", "=", "ACTIVE"),
                filter("SCALE_TYP", "=", "Qn"),
            ];
            expand(&[(LOINC, filters)], None, 1_000)
        }),
    ]
}

impl Random<'_> {
    fn below(&mut self, end: u32) -> u32 {
        self.numbers.u32(0..end)
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.numbers.usize(0..choices.len())]
    }

    /// The number of any concept of SNOMED CT.
    fn number(&mut self) -> u32 {
        self.numbers.u32(1..self.hierarchy.len())
    }

    /// The code of any concept of SNOMED CT.
    fn concept(&mut self) -> String {
        rf2_release::code(self.number())
    }

    /// The code of a concept of SNOMED CT with many descendants.
    fn broad(&mut self) -> String {
        rf2_release::code(self.numbers.u32(1..self.hierarchy.len() / 400))
    }

    /// The code of any drug of RxNorm.
    fn drug(&mut self) -> String {
        rxnorm_code(self.below(RXNORM_CODES))
    }

    fn value_set(&mut self) -> String {
        value_set_url(self.below(VALUE_SETS))
    }
}

fn lookup(system: &str, code: &str, more: &[(&str, &str)]) -> String {
    get("CodeSystem/$lookup", &[&[("system", system), ("code", code)], more].concat())
}

fn validate(url: &str, code: &str, more: &[(&str, &str)]) -> String {
    let query = [("url", url), ("system", SNOMED_CT), ("code", code)];
    get("ValueSet/$validate-code", &[&query, more].concat())
}

fn translate(url: &str, system: &str, code: &str) -> String {
    get("ConceptMap/$translate", &[("url", url), ("system", system), ("code", code)])
}

fn expand_text(url: &str, text: &str) -> String {
    get("ValueSet/$expand", &[("url", url), ("filter", text), ("count", "20")])
}

/// Expands a value set that the request contains.
fn expand(includes: &[(&str, Vec<Value>)], text: Option<&str>, count: u32) -> String {
    let include = |(system, filters): &(&str, Vec<Value>)| match filters.is_empty() {
        true => json!({ "system": system }),
        false => json!({ "system": system, "filter": filters }),
    };
    let includes: Vec<_> = includes.iter().map(include).collect();
    let set = json!({ "resourceType": "ValueSet", "status": "active", "compose": { "include": includes } });
    let mut parameters = vec![
        json!({ "name": "valueSet", "resource": set }),
        json!({ "name": "count", "valueInteger": count }),
    ];
    parameters.extend(text.map(|text| json!({ "name": "filter", "valueString": text })));
    post("ValueSet/$expand", parameters.into())
}

fn filter(property: &str, op: &str, value: &str) -> Value {
    json!({ "property": property, "op": op, "value": value })
}

/// The implicit value set of SNOMED CT with a selector.
fn implicit(selector: &str) -> String {
    match selector {
        "" => format!("{SNOMED_CT}?fhir_vs"),
        selector => format!("{SNOMED_CT}?fhir_vs={selector}"),
    }
}

fn get(path: &str, query: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("GET /fhir/R4/{path}?{query} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn post(path: &str, parameters: Value) -> String {
    let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
    let length = body.len();
    format!(
        "POST /fhir/R4/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/fhir+json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
