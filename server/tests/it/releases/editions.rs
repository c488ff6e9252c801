//! Editions of SNOMED CT: extensions with their base, and national editions as the default.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_imported_with_its_base_in_one_command() {
    const DUCKWEED: &str = "70021000888107";
    let mut server = Server::open_terminology();
    let [base, extension] = [releases().join(INTERNATIONAL), releases().join(EXTENSION)];
    imported(&import(&server, &base));
    server.start();
    let terminology = TerminologyClient::of(&server);

    // Without its base, the extension is rejected, even if the base was imported before.
    let output = import(&server, &extension);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for part in [EXTENSION, "module 900000000000012004 of 20250101", "in the same command", "nothing of this"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let query = [("system", SCT), ("code", DUCKWEED)];
    assert_eq!(terminology.get("CodeSystem/$lookup", &query).await.0, 404);

    let printed = imported(&import_all(&server, &[&extension, &base]));
    assert!(printed.contains("snomed.info-sct-70011000888101-version-20250401"), "{printed}");
    let edition = format!("{SCT}/70011000888101/version/20250401");
    let query = [("system", SCT), ("version", edition.as_str()), ("code", LILY)];
    let (status, answer) = terminology.get("CodeSystem/$lookup", &query).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Pond lily"))), "{answer}");
    assert!(terminology.is_in(&format!("{edition}?fhir_vs=ecl/< 700111004"), SCT, DUCKWEED).await);
    assert!(!terminology.is_in(&format!("{edition}?fhir_vs=ecl/< {PLANT}"), SCT, FERN).await);
    // The International Edition is unchanged.
    let international = format!("{SCT}/900000000000207008");
    let query = [("system", SCT), ("version", international.as_str()), ("code", LILY)];
    let (status, answer) = terminology.get("CodeSystem/$lookup", &query).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Water lily"))), "{answer}");
    assert!(terminology.is_in(&format!("{international}?fhir_vs=ecl/< {PLANT}"), SCT, FERN).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_national_edition_is_the_default_while_its_base_is_current() {
    const DUCKWEED: &str = "70021000888107";
    let flowers = format!("{SCT}?fhir_vs=ecl/<< {FLOWER}");
    let preference = format!("[terminology] preferred_versions = [\"{SCT}|{SCT}/70011000888101\"]");
    let mut server = Server::open_terminology();
    let [base, extension] = [releases().join(INTERNATIONAL), releases().join(EXTENSION)];
    // The stopped server names the default too.
    let printed = imported(&import_all(&server, &[&extension, &base]));
    let national = format!("{SCT}/70011000888101/version/20250401 answers requests without a version");
    assert!(printed.contains(&national), "{printed}");
    assert!(imported(&server.trefoil(&["status"])).contains(&national));
    server.start();
    let terminology = TerminologyClient::of(&server);
    let display = async |code: &str| {
        let (status, answer) =
            terminology.get("CodeSystem/$lookup", &[("system", SCT), ("code", code)]).await;
        (status, parameter(&answer, "display").cloned(), answer)
    };
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
    assert_eq!(display(DUCKWEED).await.0, 200);
    assert_eq!(terminology.subsumes(SCT, "700111004", DUCKWEED).await, "subsumes");
    assert!(!terminology.expanded(&flowers).await.contains(&IRIS.to_owned()));
    let (_, described) =
        terminology.get("CodeSystem/snomed.info-sct-70011000888101-version-20250401", &[]).await;
    let artifact = &described["extension"][0]["valueRelatedArtifact"]["resource"];
    assert_eq!(*artifact, format!("{SCT}|{SCT}/900000000000207008/version/20250101"), "{described}");

    // A newer International Edition takes over, and the answers name the edition that has a code.
    let newer = tempfile::tempdir().unwrap();
    let newer = copy_of_international(newer.path());
    rename_date(&newer, "20250101", "20250701");
    let printed = imported(&import(&server, &newer));
    let line = format!(
        "{SCT}/900000000000207008/version/20250701 answers requests without a version; another choice: {preference}"
    );
    assert!(printed.contains(&line), "{printed}");
    assert!(imported(&server.trefoil(&["status"])).contains(&line));
    assert_eq!(display(LILY).await.1, Some(json!("Water lily")));
    let (status, _, answer) = display(DUCKWEED).await;
    assert_eq!(status, 404);
    let subsumes = [("system", SCT), ("codeA", PLANT), ("codeB", DUCKWEED)];
    let validate = [("url", SCT), ("code", DUCKWEED)];
    for response in [
        answer,
        terminology.get("CodeSystem/$subsumes", &subsumes).await.1,
        terminology.get("CodeSystem/$validate-code", &validate).await.1,
    ] {
        let text = response.to_string().replace('\\', "");
        for part in ["it is in http://snomed.info/sct/70011000888101/version/20250401", &preference] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    // The setting that the answers name, until it is removed.
    let settings = preference.replace("[terminology] ", "");
    let set = |text: &str| fs::write(server.data().join("trefoil.toml"), text).unwrap();
    let before = fs::read_to_string(server.data().join("trefoil.toml")).unwrap();
    set(&format!("{before}{settings}\n"));
    imported(&server.trefoil(&["reload"]));
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
    set(&before);
    imported(&server.trefoil(&["reload"]));
    assert_eq!(display(LILY).await.1, Some(json!("Water lily")));
    imported(&server.trefoil(&[
        "release",
        "remove",
        "snomed.info-sct-900000000000207008-version-20250701",
        "--force",
    ]));
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
}

/// Changes the date of a release, in the names of its files and in their rows.
fn rename_date(folder: &Path, from: &str, to: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rename_date(&path, from, to);
        } else {
            let text = fs::read_to_string(&path).unwrap().replace(from, to);
            let name = path.file_name().unwrap().to_str().unwrap().replace(from, to);
            fs::remove_file(&path).unwrap();
            fs::write(path.with_file_name(name), text).unwrap();
        }
    }
}
