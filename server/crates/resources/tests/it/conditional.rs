//! Tests of conditional updates and deletes: preconditions, and writers that race (FHIR R4, RESTful API; RFC
//! 9110 section 13.1.1). A write that was acknowledged is never lost.

use store::{DatabaseLimits, DatabaseUrl, PageLimit, Seq, Store};
use test_database::TestDatabase;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::{DeleteResult, ExpectedVersion, ResourceError, Resources, Restriction};

use crate::now;

const WRITERS: usize = 32;

fn filter(search: &str) -> TypeFilter {
    TypeFilter::read(search, "", now()).unwrap()
}

async fn put(
    resources: &Resources,
    search: &str,
    writer: usize,
    expected: ExpectedVersion,
) -> Result<(bool, u64), ResourceError> {
    let body = format!(
        r#"{{"resourceType":"Patient","identifier":[{{"system":"urn:mrn","value":"1"}}],"name":[{{"text":"Ada","given":["w{writer}"]}}]}}"#
    );
    let view = resources.restricted_to(Restriction::None);
    let id = format!("new-{}-{writer}", search.len());
    let result = view.update_only(&view, &filter(search), body.as_bytes(), id, expected, now()).await?;
    Ok((result.created, result.stored.version))
}

/// Law: equal conditional updates at the same time all succeed, make one resource, and each makes a version.
async fn check_writers(nodes: &[Resources]) {
    // The second search has no indexed parameter.
    for search in ["Patient?identifier=urn:mrn|1", "Patient?name:contains=ada"] {
        let tasks: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let resources = nodes[writer % nodes.len()].clone();
                tokio::spawn(async move {
                    put(&resources, search, writer, ExpectedVersion::Anything).await.unwrap()
                })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await.unwrap());
        }
        assert_eq!(outcomes.iter().filter(|(created, _)| *created).count(), 1, "{search}: {outcomes:?}");
        let mut versions: Vec<_> = outcomes.iter().map(|(_, version)| *version).collect();
        versions.sort_unstable();
        let (first, resources) = (versions[0], &nodes[0]);
        assert_eq!(versions, (first..first + WRITERS as u64).collect::<Vec<_>>(), "{search}");
        let view = resources.restricted_to(Restriction::None);
        let patients = view.search("Patient", Some(&filter(search)), None, 10).await.unwrap().resources;
        assert_eq!(patients.len(), 1, "{search}");
        let limit = PageLimit { count: 100, ..PageLimit::default() };
        let history = resources.history("Patient", &patients[0].id, Seq::LATEST, limit).await.unwrap();
        let names: std::collections::BTreeSet<_> = history
            .iter()
            .map(|version| String::from_utf8_lossy(version.body.as_ref().unwrap()).into_owned())
            .map(|body| body.split("\"given\":").nth(1).unwrap().to_owned())
            .collect();
        assert_eq!(names.len(), WRITERS, "each write is a version");
        // Deletes at the same time delete it once.
        let deletes: Vec<_> = (0..4)
            .map(|writer| {
                let resources = nodes[writer % nodes.len()].clone();
                tokio::spawn(async move {
                    let view = resources.restricted_to(Restriction::None);
                    view.delete_only(&view, &filter(search), ExpectedVersion::Anything, now()).await.unwrap()
                })
            })
            .collect();
        let mut deleted = 0;
        for delete in deletes {
            deleted += usize::from(matches!(delete.await.unwrap(), DeleteResult::Deleted(_)));
        }
        assert_eq!(deleted, 1, "{search}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_at_the_same_time_all_succeed_on_each_engine() {
    check_writers(&[Resources::new(Store::memory())]).await;
    let dir = tempfile::tempdir().unwrap();
    check_writers(&[Resources::new(Store::open(dir.path()).unwrap())]).await;
    // Nodes on the same database.
    if let Some(database) = TestDatabase::shared() {
        let url = DatabaseUrl::new(database.create().unwrap(), None);
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Resources::new(Store::postgres(&url, DatabaseLimits::default()).await.unwrap()));
        }
        check_writers(&nodes).await;
    }
}

#[tokio::test]
async fn a_precondition_applies_to_the_resource_that_is_found() {
    let resources = Resources::new(Store::memory());
    let search = "Patient?identifier=1";
    let is_refusal = |result: Result<(bool, u64), ResourceError>| {
        matches!(result, Err(ResourceError::PreconditionFailed { .. }))
    };
    // Nothing is found.
    for expected in [ExpectedVersion::Version(1), ExpectedVersion::Present] {
        assert!(is_refusal(put(&resources, search, 0, expected).await), "{expected:?}");
    }
    assert_eq!(put(&resources, search, 0, ExpectedVersion::Absent).await, Ok((true, 1)));
    assert!(is_refusal(put(&resources, search, 0, ExpectedVersion::Absent).await));
    assert!(is_refusal(put(&resources, search, 0, ExpectedVersion::Version(7)).await));
    assert_eq!(put(&resources, search, 1, ExpectedVersion::Version(1)).await, Ok((false, 2)));
    assert_eq!(put(&resources, search, 2, ExpectedVersion::Present).await, Ok((false, 3)));
    let view = resources.restricted_to(Restriction::None);
    let delete = async |expected| view.delete_only(&view, &filter(search), expected, now()).await;
    assert!(matches!(
        delete(ExpectedVersion::Version(2)).await,
        Err(ResourceError::PreconditionFailed { .. })
    ));
    assert!(matches!(delete(ExpectedVersion::Version(3)).await, Ok(DeleteResult::Deleted(_))));
    assert!(matches!(delete(ExpectedVersion::Present).await, Err(ResourceError::PreconditionFailed { .. })));
    assert_eq!(delete(ExpectedVersion::Anything).await, Ok(DeleteResult::WasAbsent));
}
