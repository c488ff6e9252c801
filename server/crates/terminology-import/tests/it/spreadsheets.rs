//! Tables as people save them: every combination of delimiter, encoding, padding, line ends and headings
//! gives the same code system, and workbooks do too.

use std::path::Path;

use fhir::Parameters;
use serde_json::{Value, json};
use terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange};
use trefoil_terminology_import::{
    StatedEncoding, StatedRelease, TableOptions, group_releases_as, import_files,
};

use crate::support::{release_path, run_expand};

/// Rows with a comma, a semicolon and a quote in cells, a code that a child precedes, and an empty cell.
const ROWS: [[&str; 4]; 4] = [
    ["waltz", "Waltz, slow", "dance", "Walzer; für \"Ältere\""],
    ["dance", "Dance", "", "Tanz"],
    ["7", "Seven", "waltz", "Sieben"],
    ["100.5", "Café", "dance", ""],
];
const HEADINGS: [[&str; 4]; 4] = [
    ["code", "display", "parent", "designation:de"],
    [" CODE ", "Display", "PARENT", "Designation (de)"],
    ["Schlüssel", "Bezeichnung", "Oberbegriff", "Bezeichnung (de)"],
    ["Code", "Libellé", "Code parent", "libellé (de)"],
];

/// The import of a file with these bytes, as its whole expansion.
fn import(name: &str, bytes: &[u8], table: &TableOptions) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    import_path(&path, table)
}

fn import_path(path: &Path, table: &TableOptions) -> Result<Value, String> {
    let stated = StatedRelease { table: table.clone(), ..StatedRelease::default() };
    let release = group_releases_as(vec![path.to_owned()], &stated).remove(0);
    let index = release.import(&mut |_| {}).map_err(|error| error.to_string())?.index;
    let url = index.url().to_owned();
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "table".to_owned(), index }]);
    let set = json!({ "resourceType": "ValueSet", "compose": { "include": [{ "system": url }] } });
    let body = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "valueSet", "resource": set },
        { "name": "includeDesignations", "valueBoolean": true },
        { "name": "property", "valueString": "parent" },
        { "name": "property", "valueString": "since" },
    ] });
    let body = Parameters::from_json(body.to_string().as_bytes()).unwrap();
    let expanded = run_expand(&terminology, OperationLevel::Type, OperationInput::from_body(&body)).unwrap();
    Ok(expanded["expansion"]["contains"].clone())
}

fn cell(text: &str, delimiter: char) -> String {
    let is_plain = !text.contains([delimiter, '"', '\n']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// The table as a spreadsheet program saves it.
fn saved(delimiter: char, headings: &[&str; 4], is_padded: bool, line_end: &str) -> String {
    let padding = if is_padded { delimiter.to_string().repeat(3) } else { String::new() };
    let first = ["# url: https://example.org/dances", "# title: Dances, old", ""];
    let first = first.map(|line| if is_padded { cell(line, delimiter) + &padding } else { line.to_owned() });
    let row = |row: &[&str; 4]| {
        let cells = row.map(|text| cell(text, delimiter)).join(&delimiter.to_string());
        cells + &padding
    };
    let empty = if is_padded { vec![delimiter.to_string().repeat(6)] } else { Vec::new() };
    let rows = std::iter::once(row(headings)).chain(ROWS.iter().map(row)).chain(empty);
    first.into_iter().chain(rows).map(|line| line + line_end).collect()
}

fn utf_16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(to_bytes).collect()
}

#[test]
fn all_forms_of_a_table_are_the_same_code_system() {
    let plain = TableOptions::default();
    let latin1 = TableOptions { encoding: Some(StatedEncoding::Latin1), sheet: None };
    let expected = import("a.csv", saved(',', &HEADINGS[0], false, "\n").as_bytes(), &plain).unwrap();
    for part in ["Waltz, slow", "Walzer; für", "Café", r#""code":"7""#, r#""valueCode":"waltz""#] {
        assert!(expected.to_string().contains(part), "{part} is not in {expected}");
    }
    for (delimiter, name) in [(',', "b.csv"), (';', "b.csv"), ('\t', "b.tsv")] {
        for (headings, is_padded, line_end) in HEADINGS
            .iter()
            .flat_map(|h| [(h, false, "\n"), (h, true, "\n"), (h, false, "\r\n"), (h, true, "\r\n")])
        {
            let text = saved(delimiter, headings, is_padded, line_end);
            let marked = format!("\u{feff}{text}");
            let forms = [
                (text.clone().into_bytes(), &plain),
                (marked.clone().into_bytes(), &plain),
                (utf_16(&marked, u16::to_le_bytes), &plain),
                (utf_16(&marked, u16::to_be_bytes), &plain),
                (utf_16(&text, u16::to_le_bytes), &plain),
                (text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect(), &latin1),
            ];
            for (at, (bytes, options)) in forms.iter().enumerate() {
                let import_result =
                    import(name, bytes, options).unwrap_or_else(|error| panic!("form {at}: {error}\n{text}"));
                assert_eq!(import_result, expected, "form {at} of\n{text}");
            }
        }
    }
}

#[test]
fn sheets_of_workbooks_are_tables() {
    let expected = "# url: https://example.org/dances\ncode,display,parent,designation:de,since\n\
        dance,Dance,,Tanz,\nwaltz,Waltz,dance,Walzer,1980-01-01\n7,\"Tango, seven\",dance,Tango,1880\n\
        100.5,Polka,waltz,Polka,\n";
    let first = TableOptions::default();
    let expected = import("a.csv", expected.as_bytes(), &first).unwrap();
    for name in ["dances.xlsx", "dances.ods"] {
        assert_eq!(import_path(&release_path(name), &first).unwrap(), expected, "{name}");
    }
    let sheet = |name: &str| TableOptions { encoding: None, sheet: Some(name.to_owned()) };
    let old = import_path(&release_path("dances.xlsx"), &sheet("Old")).unwrap();
    assert_eq!(old.as_array().unwrap().len(), 1);
    let missing = import_path(&release_path("dances.xlsx"), &sheet("New")).unwrap_err();
    assert!(
        missing.ends_with("the workbook has no sheet 'New'; name one of its sheets: Codes, Old"),
        "{missing}"
    );
}

#[test]
fn faults_of_tables_are_named_with_their_remedy() {
    let plain = TableOptions::default();
    let url = "# url: urn:x\n";
    for (name, bytes, expected) in [
        (
            "a.csv",
            format!("{url}key,value\na,b\n").into_bytes(),
            "a.csv:2: no column has the heading 'code' (or kode",
        ),
        ("a.csv", format!("{url}key,value\na,b\n").into_bytes(), "columns seen: key, value"),
        (
            "a.csv",
            b"# url: https://e.org/a,b\ncode\na\n".to_vec(),
            "a.csv:1: the URL 'https://e.org/a,b' contains a comma",
        ),
        (
            "a.csv",
            [url.as_bytes(), b"code\nK\xE4se\n"].concat(),
            "line 3 is not UTF-8; save the file as 'CSV UTF-8', or add --encoding latin1",
        ),
        (
            "a.csv",
            format!("{url}code,,display\na,x,A\n").into_bytes(),
            "a.csv:3: the cell 'x' is in a column without a heading",
        ),
        (
            "a.csv",
            format!("{url}code,display,\na,A,x\n").into_bytes(),
            "a.csv:3: column 3 has 'x', but no heading",
        ),
        (
            "a.csv",
            format!("{url}code,display\na,A,x\n").into_bytes(),
            "a.csv:3: the row has 3 fields, the heading 2",
        ),
        (
            "a.csv",
            format!("{url}# parents: tree\ncode\na\n").into_bytes(),
            "a.csv:2: 'tree' is unknown; # parents: prefix",
        ),
        ("a.csv", format!("{url}# owner: me\ncode\na\n").into_bytes(), "a.csv:2: unknown name 'owner'"),
        ("a.xlsx", b"code\na\n".to_vec(), "save it again as .xlsx, .ods or 'CSV UTF-8'"),
        ("a.csv", url.as_bytes().to_vec(), "columns seen: none"),
    ] {
        let error = import(name, &bytes, &plain).unwrap_err();
        assert!(error.contains(expected), "{error}\ninstead of {expected}");
    }
    let sheet = TableOptions { encoding: None, sheet: Some("A".to_owned()) };
    assert!(import("a.csv", url.as_bytes(), &sheet).unwrap_err().contains("--sheet applies to a workbook"));
    let loinc = import_path(&release_path("Loinc_0.1"), &sheet).unwrap_err();
    assert!(loinc.contains("--encoding and --sheet apply to CSV and spreadsheets only"), "{loinc}");
}

#[test]
fn parents_can_be_the_longest_prefixes() {
    let text = "# url: urn:x\n# parents: prefix\nATC-Code;ATC-Bedeutung;parent\nA01AA01;Sodium fluoride;\nA;Alimentary;\n\
        A01;Stomatological;\nA01AA;Prophylactic;\nB;Blood;\nA01AA02;Other;B\n";
    let index = import_files(vec![("atc.csv".to_owned(), text.as_bytes().to_vec())]).unwrap().index;
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "atc".to_owned(), index }]);
    for (above, code, expected) in [
        ("A01AA", "A01AA01", "subsumes"),
        ("A", "A01AA01", "subsumes"),
        ("B", "A01AA02", "subsumes"),
        ("A", "A01AA02", "not-subsumed"),
    ] {
        let query = Parameters::from_query(&format!("system=urn:x&codeA={above}&codeB={code}"));
        let operation = terminology::TerminologyOperation::Subsumes;
        let input = OperationInput::from_query(&query);
        let response = crate::support::run(&terminology, operation, OperationLevel::Type, input).unwrap();
        assert!(
            String::from_utf8_lossy(&fhir::Json::to_json(&response)).contains(expected),
            "{above} {code}"
        );
    }
}
