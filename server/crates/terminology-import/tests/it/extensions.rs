//! SNOMED CT extension packages, imported with the packages on which they depend. The packages are small and
//! made for these tests: some are in `fixtures/releases`, and others are written by the tests.

use std::fs;
use std::path::{Path, PathBuf};

use fhir::Parameters;
use terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation};
use trefoil_terminology_import::{Release, group_releases};

use crate::packages::{CORE, LAND, MODEL, OTHER, Packages, Rows, TOWN, depends};
use crate::support::{release_path, run, short, validate_code};

const SCT: &str = "http://snomed.info/sct";
const INTERNATIONAL: &str = "SnomedCT_GardenInternationalRF2_20250101T120000Z";
const EXTENSION: &str = "SnomedCT_GardenExtensionRF2_20250401T120000Z";
const VERSION: &str = "http://snomed.info/sct/70011000888101/version/20250401";
const DUCKWEED: &str = "70021000888107";

/// Imports the releases in these paths. Returns a terminology that contains all of them, and their versions.
fn together(paths: Vec<PathBuf>) -> (Terminology, Vec<String>) {
    let terminology = Terminology::default();
    let mut versions = Vec::new();
    for release in group_releases(paths) {
        let index = release.import(&mut |_| {}).unwrap_or_else(|error| panic!("{error}")).index;
        versions.push(index.version().unwrap().to_owned());
        terminology.apply([TerminologyChange::Index { id: format!("release-{}", versions.len()), index }]);
    }
    (terminology, versions)
}

#[test]
fn rows_of_an_extension_replace_those_of_its_base() {
    let [base, extension] = [release_path(INTERNATIONAL), release_path(EXTENSION)];
    let international = format!("{SCT}/900000000000207008/version/20250101");
    let (_, versions) = together(vec![base.clone(), extension.clone()]);
    assert_eq!(versions, [&international, VERSION]);
    let (terminology, versions) = together(vec![extension, base]);
    assert_eq!(versions, [VERSION, &international]);

    // Each row has a request, the answer of the base, and the answer of the edition with the extension.
    for (constraint, code, more, of_base, of_edition) in [
        ("*", DUCKWEED, "", "false", "true [Duckweed]"),
        ("*", DUCKWEED, "&display=Wasserlinse&displayLanguage=de", "false", "true [Wasserlinse]"),
        // A concept that is inactive in the extension, and one that is active in an extension older than its
        // retirement in the base.
        ("*", "700114007", "&activeOnly=true", "true [Fern]", "false"),
        ("*", "700115008", "&activeOnly=true", "false", "false"),
        // A term that the extension retired, and the replacement in the extension.
        ("*", "700112006", "", "true [Water lily]", "true [Pond lily]"),
        ("*", "700112006", "&display=Pond+lily", "false", "true"),
        ("*", "700112006", "&display=Water+lily", "true [Water lily]", "true [Pond lily]"),
        ("*", "700112006", "&display=Seerose&displayLanguage=de", "true [Seerose]", "true [Seerose]"),
        // The extension moves the iris from the flowers to the water plants, and removes the fern from the
        // plants.
        ("<< 700110003", "700113001", "", "true", "false"),
        ("<< 700111004", "700113001", "", "false", "true"),
        ("<< 700101006", "700114007", "", "true", "false"),
        ("<< 700101006 : 700002005 = 700104003", DUCKWEED, "", "false", "true"),
        // A different concrete value, and members of a reference set.
        ("* : 700004006 > #1", "700113001", "", "false", "true"),
        ("^ 700010003", "700112006", "", "true", "true"),
        ("^ 700010003", "700114007", "", "true", "false"),
        ("^ 700010003", DUCKWEED, "", "false", "true"),
    ] {
        for (version, expected) in [(international.as_str(), of_base), (VERSION, of_edition)] {
            let response =
                validate_code(&terminology, &format!("{version}?fhir_vs=ecl/{constraint}"), SCT, code, more);
            assert!(response.starts_with(expected), "{version} {constraint} {code}{more}: {response}");
        }
    }
    // `$subsumes` also distinguishes the editions.
    for (version, expected) in [(international.as_str(), "subsumes"), (VERSION, "not-subsumed")] {
        let query = format!("system={SCT}&version={version}&codeA=700110003&codeB=700113001");
        let query = Parameters::from_query(&query);
        assert_eq!(
            short(run(
                &terminology,
                TerminologyOperation::Subsumes,
                OperationLevel::Type,
                OperationInput::from_query(&query)
            )),
            expected,
            "{version}"
        );
    }
}

#[test]
fn an_extension_without_its_base_is_rejected_with_module_and_date() {
    let check = |paths: Vec<PathBuf>, expected: &str| {
        let mut releases = group_releases(paths);
        let error = releases.remove(0).import(&mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(EXTENSION) && error.contains(expected), "{error}");
        for other in releases {
            other.import(&mut |_| {}).unwrap();
        }
    };
    let extension = release_path(EXTENSION);
    let missing =
        "module 900000000000012004 of 20250101, which is in none of the given packages; name the package";
    check(vec![extension.clone()], missing);
    // Packages with another date of the module, and a release of another kind.
    let later =
        "module 900000000000012004 of 20250101, but the given packages contain only its release of 20250301";
    check(vec![extension.clone(), release_path("SnomedCT_GardenEditionRF2_20250301T120000Z")], later);
    check(vec![extension, release_path("Loinc_0.1"), release_path("plants.csv")], missing);
}

#[test]
fn extensions_may_depend_on_one_base_or_on_one_another() {
    let packages = Packages::new();
    let base = packages.base();
    let [a, b] = [depends(1, LAND, CORE), depends(2, LAND, MODEL)];
    let land = packages.write(
        "XX_20250201",
        &Rows {
            depends: &[&a, &b],
            concepts: &[
                "41000005 20250201 1 41000005 900000000000074008",
                "13000001 20250201 1 41000005 900000000000074008",
            ],
            descriptions: &["21000001 20250201 1 41000005 11000006 en 900000000000013009 Timber x"],
            relationships: &[
                "33000006 20250201 1 41000005 13000001 11000006 0 116680003 900000000000011006 x",
                "32000004 20250201 0 41000005 12000003 11000006 0 116680003 900000000000011006 x",
            ],
            ..Rows::default()
        },
    );
    let [a, b, c] = [depends(3, TOWN, LAND), depends(4, TOWN, CORE), depends(5, TOWN, MODEL)];
    let town = packages.write(
        "YY_20250301",
        &Rows {
            depends: &[&a, &b, &c],
            concepts: &[
                "42000007 20250301 1 42000007 900000000000074008",
                // A concept of the lower extension, which is inactive in this one.
                "13000001 20250301 0 42000007 900000000000074008",
            ],
            descriptions: &["21000001 20250301 1 42000007 11000006 en 900000000000013009 Plank x"],
            // The same relationships as in the base, different from the lower extension.
            relationships: &[
                "32000004 20250301 1 42000007 12000003 11000006 0 116680003 900000000000011006 x",
            ],
            ..Rows::default()
        },
    );
    let [a, b] = [depends(6, OTHER, CORE), depends(7, OTHER, MODEL)];
    let other = packages.write(
        "ZZ_20250201",
        &Rows {
            depends: &[&a, &b],
            concepts: &["43000009 20250201 1 43000009 900000000000074008"],
            // A row that is older than the row of the base.
            descriptions: &["21000001 20241201 1 43000009 11000006 en 900000000000013009 Shrub x"],
            ..Rows::default()
        },
    );
    let (terminology, versions) = together(vec![town, other, land, base]);
    let edition = |[module, date]: [&str; 2]| format!("{SCT}/{module}/version/{date}");
    assert_eq!(versions, [TOWN, OTHER, LAND, CORE].map(edition));
    for (of, tree, below, has_module, has_new) in [
        (CORE, "Tree", true, "false", "false"),
        (LAND, "Timber", false, "true", "true"),
        (TOWN, "Plank", true, "true", "false"),
        (OTHER, "Tree", true, "true", "false"),
    ] {
        let version = edition(of);
        let is_in = |code: &str, more: &str| {
            validate_code(&terminology, &format!("{version}?fhir_vs"), SCT, code, more)
        };
        assert!(is_in("11000006", "").starts_with(&format!("true [{tree}]")), "{version}");
        assert!(is_in(of[0], "").starts_with(has_module), "{version}");
        assert!(is_in("13000001", "&activeOnly=true").starts_with(has_new), "{version}");
        let query = format!("system={SCT}&version={version}&codeA=11000006&codeB=12000003");
        let query = Parameters::from_query(&query);
        let expected = if below { "subsumes" } else { "not-subsumed" };
        assert_eq!(
            short(run(
                &terminology,
                TerminologyOperation::Subsumes,
                OperationLevel::Type,
                OperationInput::from_query(&query)
            )),
            expected,
            "{version}"
        );
    }
}

#[test]
fn the_international_edition_is_the_default() {
    // The module of the second edition has a greater number than the module of the International Edition.
    const UPPER: [&str; 2] = ["999000011000000103", "20250201"];
    let packages = Packages::new();
    let base = packages.base();
    let write = |name: &str, of: [&str; 2], term: &str| {
        let [a, b] = [depends(1, of, CORE), depends(2, of, MODEL)];
        let concept = format!("{0} {1} 1 {0} 900000000000074008", of[0], of[1]);
        let description = format!("21000001 {1} 1 {0} 11000006 en 900000000000013009 {term} x", of[0], of[1]);
        let rows = Rows {
            depends: &[&a, &b],
            concepts: &[&concept],
            descriptions: &[&description],
            ..Rows::default()
        };
        packages.write(name, &rows)
    };
    let [land, upper] = [write("XX_20250201", LAND, "Timber"), write("ZZ_20250201", UPPER, "Wood")];
    for paths in [[base.clone(), land.clone(), upper.clone()], [upper, land, base]] {
        let (terminology, _) = together(paths.to_vec());
        let response = validate_code(&terminology, &format!("{SCT}?fhir_vs"), SCT, "11000006", "");
        assert!(response.starts_with("true [Tree]"), "{response}");
    }
}

#[test]
fn errors_in_an_extension_name_file_and_line() {
    let check = |concepts: &[&str], expected: &str| {
        let packages = Packages::new();
        let base = packages.base();
        let [a, b] = [depends(1, LAND, CORE), depends(2, LAND, MODEL)];
        let rows = Rows { depends: &[&a, &b], concepts, ..Rows::default() };
        let [extension, base]: [Release; 2] =
            group_releases(vec![packages.write("XX_20250201", &rows), base]).try_into().unwrap();
        let error = extension.import(&mut |_| {}).unwrap_err().to_string();
        assert!(
            error.contains("sct2_Concept_Snapshot_XX_20250201.txt:2: ") && error.contains(expected),
            "{error}"
        );
        base.import(&mut |_| {}).unwrap();
    };
    check(&["41-x 20250201 1 41000005 x"], "'41-x' is not the identifier");
    check(&["41000005 today 1 41000005 x"], "effectiveTime 'today' is not a date");
    check(&["41000005 20250201 yes 41000005 x"], "active is 'yes', not 0 or 1");
    check(
        &["41000005 20250201"],
        "the line has 2 fields instead of 5; the file is truncated or corrupt, copy it again",
    );
}

#[test]
fn an_extension_in_an_archive_uses_a_base_in_a_folder() {
    let archive = crate::releases::zipped(&release_path(EXTENSION));
    let (_, versions) = together(vec![archive.path().to_owned(), release_path(INTERNATIONAL)]);
    assert_eq!(versions[0], VERSION);
}

#[test]
fn a_moved_release_has_the_same_hash() {
    let hash = |path: PathBuf| group_releases(vec![path]).remove(0).content_hash(&mut |_| {}).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, renamed, is_same) in [
        (INTERNATIONAL, "old", true),
        ("icd10cm-garden", "Loinc_9.9", true),
        ("claml-garden", "old", true),
        ("plants.csv", "herbs.csv", true),
        // The name of this folder contains the version, which is part of the hash.
        ("Loinc_0.1", "Loinc_0.2", false),
        ("RxNorm_full_01012025", "RxNorm_full_02032025", false),
    ] {
        let first = hash(release_path(name));
        let moved = folder.path().join(name);
        copy(&release_path(name), &moved);
        assert_eq!(hash(moved.clone()), first, "{name}");
        let other = folder.path().join("other").join(renamed);
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::rename(moved, &other).unwrap();
        assert_eq!(hash(other.clone()) == first, is_same, "{name}");
        fs::remove_dir_all(folder.path().join("other")).unwrap();
    }
    // The name of an order file contains the version, too.
    let order = release_path("icd10cm-garden").join("icd10cm_order_2025.txt");
    let [same, next] =
        ["icd10cm-order-April-2025.txt", "icd10cm_order_2026.txt"].map(|name| folder.path().join(name));
    fs::copy(&order, &same).unwrap();
    fs::copy(&order, &next).unwrap();
    let first = hash(order);
    assert!(hash(same) == first && hash(next) != first);
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
}

#[test]
fn the_hash_of_an_edition_includes_its_dependencies() {
    let packages = Packages::new();
    let base = packages.base();
    let [a, b] = [depends(1, LAND, CORE), depends(2, LAND, MODEL)];
    let rows = Rows { depends: &[&a, &b], ..Rows::default() };
    let extension = packages.write("XX_20250201", &rows);
    let hashes = || {
        let releases = group_releases(vec![base.clone(), extension.clone()]);
        releases.iter().map(|release| release.content_hash(&mut |_| {}).unwrap()).collect::<Vec<_>>()
    };
    let first = hashes();
    assert_ne!(first[0], first[1]);
    assert_eq!(hashes(), first);
    // Files that the import does not read are not part of the hash.
    fs::create_dir_all(base.join("Full/Terminology")).unwrap();
    fs::write(base.join("Full/Terminology/sct2_Concept_Full_INT_20250101.txt"), "id").unwrap();
    assert_eq!(hashes(), first);
    let of_extension = extension.join("Snapshot/Terminology/sct2_Relationship_Snapshot_XX_20250201.txt");
    fs::write(of_extension, "id\r\n").unwrap();
    let second = hashes();
    assert!(second[0] == first[0] && second[1] != first[1]);
    let of_base = base.join("Snapshot/Terminology/sct2_Description_Snapshot-en_INT_20250101.txt");
    fs::write(of_base, "id\r\n").unwrap();
    let third = hashes();
    assert!(third[0] != second[0] && third[1] != second[1]);
}
