//! Test with real data, if available: in the folder named by TREFOIL_SHARED, or in `shared` next to the
//! workspace. The data are not part of the project. Without them, this test prints that it is left out.

use std::path::{Path, PathBuf};

use store::{PageLimit, ScanOptions, Seq, Store, Versions};
use tempfile::TempDir;
use trefoil_resources::{ImportOptions, Resources};

use crate::import;

fn data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared");
    let shared = std::env::var_os("TREFOIL_SHARED").map_or_else(beside, PathBuf::from);
    Some(shared.join("data")).filter(|data| data.is_dir())
}

#[tokio::test(flavor = "multi_thread")]
async fn terminology_and_patients_are_imported() {
    let Some(data) = data() else {
        println!("left out: no folder 'data' in TREFOIL_SHARED or in 'shared' beside the workspace");
        return;
    };
    let dir = TempDir::new().unwrap();
    let resources = Resources::new(Store::open(dir.path()).unwrap());
    let terminology = vec![data.join("hl7.fhir.r4.terminology-4.0.1.tgz")];
    let (report, _) = import(&resources, terminology, ImportOptions::default()).await;
    assert_eq!((report.total(), report.bad_total), (2_380, 0), "{:?}", report.bad);
    assert_eq!(report.irregular_total, 0, "{:?}", report.irregular);
    let clinical = vec![data.join("synthea-10")];
    let (report, _) = import(&resources, clinical.clone(), ImportOptions::default()).await;
    assert_eq!((report.total(), report.bad_total), (7_160, 0), "{:?}", report.bad);
    assert_eq!(report.irregular_total, 0, "{:?}", report.irregular);
    let (report, _) = import(&resources, clinical, ImportOptions::default()).await;
    assert!(report.resources.values().all(|count| count.same == count.total()), "{report:?}");

    let all = ScanOptions::at(Seq::LATEST).limit(PageLimit { count: 10_000, bytes: usize::MAX });
    let patients = resources.store().scan_kind("Patient", all).await.unwrap().versions;
    assert_eq!(patients.len(), 13);
    let encounters = resources.store().scan_kind("Encounter", all).await.unwrap().versions.len();
    let mut of_patients = 0;
    for patient in patients {
        let compartment = patient.key.to_string();
        let page = resources.store().scan_compartment(&compartment, "Encounter", all).await.unwrap();
        of_patients += page.versions.len();
    }
    assert_eq!(of_patients, encounters, "each encounter is in the compartment of one patient");
}
