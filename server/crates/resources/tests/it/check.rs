//! The comparison of a store with its resources.

use jiff::Timestamp;
use store::{ResourceDraft, ResourceKey, Store, VersionWrite, Versions as _};
use tempfile::TempDir;
use test_database::TestDatabase;
use trefoil_resources::check::{StoreCheck, check_store};
use trefoil_resources::{ExpectedVersion, Resources};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

async fn check(store: &Store) -> StoreCheck {
    check_store(store, "https://here.example/r4", |_| {}).await.unwrap()
}

#[tokio::test]
async fn a_version_that_the_index_lacks_is_found() {
    let folder = TempDir::new().unwrap();
    let mut stores = vec![Store::memory(), Store::open(folder.path()).unwrap()];
    if let Some(database) = TestDatabase::shared() {
        let url = store::DatabaseUrl::new(database.create().unwrap(), None);
        stores.push(Store::postgres(&url, store::DatabaseLimits::default()).await.unwrap());
    }
    for store in stores {
        let resources = Resources::at(store.clone(), "https://here.example/r4");
        for (kind, id, body) in [
            (
                "Patient",
                "a",
                r#"{"resourceType":"Patient","id":"a","gender":"female","name":[{"family":"Hale"}]}"#,
            ),
            (
                "Patient",
                "a",
                r#"{"resourceType":"Patient","id":"a","gender":"female","name":[{"family":"Moss"}]}"#,
            ),
            ("Patient", "a-", r#"{"resourceType":"Patient","id":"a-","gender":"female"}"#),
            (
                "Observation",
                "o",
                r#"{"resourceType":"Observation","id":"o","status":"final","code":{"text":"x"},"subject":{"reference":"Patient/a"},"encounter":{"reference":"Encounter/none"}}"#,
            ),
        ] {
            resources.update(kind, id, body.as_bytes(), ExpectedVersion::Anything, NOW).await.unwrap();
        }
        resources.delete("Patient", "a-", ExpectedVersion::Anything, NOW).await.unwrap();
        let sound = check(&store).await;
        assert_eq!((sound.versions, sound.resources, sound.defects), (5, 2, 0), "{sound:?}");
        assert_eq!(
            (sound.dangling_references, &*sound.named_dangling[0]),
            (1, "Observation/o refers to Encounter/none")
        );

        // A version without terms, and one that is not a resource.
        let unindexed =
            r#"{"resourceType":"Patient","id":"b","meta":{"versionId":"","lastUpdated":""},"gender":"male"}"#;
        for (id, body) in [("b", unindexed), ("c", r#"{"versionId":"","lastUpdated":""#)] {
            let place = |member: &str| body.find(member).unwrap() + member.len();
            let (version_at, updated_at) = (place(r#""versionId":""#), place(r#""lastUpdated":""#));
            let draft = ResourceDraft { bytes: body.as_bytes().to_vec(), version_at, updated_at };
            let write = VersionWrite::put(ResourceKey::new("Patient", id), draft, Vec::new());
            store.commit(vec![write], NOW).await.unwrap();
        }
        let broken = check(&store).await;
        assert_eq!(broken.defects, 2, "{broken:?}");
        let lacking = "Patient/b version 1: the search index does not list it under all its terms";
        assert!(broken.named_defects.iter().any(|text| text == lacking), "{broken:?}");
        assert!(
            broken.named_defects.iter().any(|text| text.starts_with("Patient/c version 1: ")),
            "{broken:?}"
        );
    }
}
