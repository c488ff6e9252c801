//! The National Drug Code directory.

use std::fs;

use terminology::{Terminology, TerminologyChange};
use trefoil_terminology_import::{StatedRelease, group_releases_as, import_files};

use crate::support::{lookup, subsumes};

const URL: &str = "http://hl7.org/fhir/sid/ndc";

/// Tables with tabs written as bars.
const PRODUCTS: &str = "PRODUCTID|PRODUCTNDC|PRODUCTTYPENAME|PROPRIETARYNAME|PROPRIETARYNAMESUFFIX|NONPROPRIETARYNAME|DOSAGEFORMNAME|ROUTENAME|STARTMARKETINGDATE|LABELERNAME|SUBSTANCENAME|ACTIVE_NUMERATOR_STRENGTH|ACTIVE_INGRED_UNIT|DEASCHEDULE|NDC_EXCLUDE_FLAG
1|0002-0152|HUMAN PRESCRIPTION DRUG|Gardenol|Forte|Fennel|TABLET|ORAL|20240101|Garden Labs|FENNEL|5|mg/1||N
2|55555-123|HUMAN OTC DRUG|||Mint|CREAM|TOPICAL|20240101|Allotment|MINT|1|g/1||E
1b|0002-0152|HUMAN PRESCRIPTION DRUG|Gardenol|Forte|Fennel|TABLET|ORAL|20240101|Garden Labs|FENNEL|5|mg/1||N
";
const PACKAGES: &str = "PRODUCTID|PRODUCTNDC|NDCPACKAGECODE|PACKAGEDESCRIPTION|STARTMARKETINGDATE|NDC_EXCLUDE_FLAG|SAMPLE_PACKAGE
1|0002-0152|0002-0152-01|30 TABLET in 1 BOTTLE|20240101|N|N
2|55555-123|55555-123-4|10 g in 1 TUBE|20240101|E|N
";

fn files(products: &str, packages: &str) -> Vec<(String, Vec<u8>)> {
    let file = |name: &str, text: &str| (name.to_owned(), text.replace('|', "\t").into_bytes());
    vec![file("product.txt", products), file("package.txt", packages)]
}

#[test]
fn packages_have_both_forms_of_their_code() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files(PRODUCTS, PACKAGES) {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let stated = StatedRelease { version: Some("20260105".to_owned()), ..StatedRelease::default() };
    let mut releases = group_releases_as(vec![folder.path().to_owned()], &stated);
    let imported = releases.pop().unwrap().import(&mut |_| {}).unwrap();
    let terminology = Terminology::default();
    terminology.apply([TerminologyChange::Index { id: "ndc".to_owned(), index: imported.index }]);
    for code in ["0002-0152-01", "00002015201"] {
        let concept = lookup(&terminology, URL, code);
        let display = "display=Gardenol Forte, 30 TABLET in 1 BOTTLE";
        for expected in ["version=20260105", display, "parent=0002-0152"] {
            assert!(concept.contains(expected), "{expected}: {concept}");
        }
    }
    let product = lookup(&terminology, URL, "0002-0152");
    for expected in ["display=Gardenol Forte, TABLET", "labeler=Garden Labs", "strength=5", "route=ORAL"] {
        assert!(product.contains(expected), "{expected}: {product}");
    }
    let excluded = lookup(&terminology, URL, "55555012304");
    assert!(excluded.contains("inactive=true"), "{excluded}");
    assert_eq!(subsumes(&terminology, URL, "0002-0152", "00002015201"), "subsumes");
}

#[test]
fn a_fault_says_what_is_missing() {
    let error =
        |products: &str, packages: &str| import_files(files(products, packages)).unwrap_err().to_string();
    assert!(error(PRODUCTS, PACKAGES).contains("no version found: the directory states none"));
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("ndctext-20260105");
    fs::create_dir(&package).unwrap();
    for (name, bytes) in files(PRODUCTS, &PACKAGES.replace("|55555-123|", "|55555-124|")) {
        fs::write(package.join(name), bytes).unwrap();
    }
    let mut releases = group_releases_as(vec![package], &StatedRelease::default());
    let error = releases.pop().unwrap().import(&mut |_| {}).unwrap_err().to_string();
    assert_eq!(error, "package.txt:3: the product 55555-124 of the package 55555-123-4 does not exist");
}
