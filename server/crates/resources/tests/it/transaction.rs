//! Bundles of requests.

use store::{Seq, Store, Versions};
use trefoil_resources::{Action, BodyError, Deletion, Done, ResourceError, Resources};

use crate::{new_ids, now};

fn bundle(kind: &str, entries: &[&str]) -> String {
    format!(r#"{{"resourceType":"Bundle","type":"{kind}","entry":[{}]}}"#, entries.join(","))
}

fn request(method: &str, url: &str, more: &str) -> String {
    format!(r#""request":{{"method":"{method}","url":"{url}"{more}}}"#)
}

fn put(id: &str, more: &str) -> String {
    let request = request("PUT", &format!("Basic/{id}"), more);
    format!(r#"{{"resource":{{"resourceType":"Basic","id":"{id}"}},{request}}}"#)
}

async fn run(resources: &Resources, bundle: &str) -> Result<Vec<Result<Done, ResourceError>>, ResourceError> {
    let plan = resources.plan(bundle.as_bytes(), new_ids())?;
    resources.carry_out(plan, now()).await
}

fn told(done: &Result<Done, ResourceError>) -> String {
    match done {
        Ok(Done::Created(stored)) => format!("created {}/{} {}", stored.kind, stored.id, stored.version),
        Ok(Done::Updated(stored)) => format!("updated {}/{} {}", stored.kind, stored.id, stored.version),
        Ok(Done::Read(stored)) => format!("read {}/{} {}", stored.kind, stored.id, stored.version),
        Ok(Done::Deleted(Deletion::Deleted { version })) => format!("deleted {version}"),
        Ok(Done::Deleted(Deletion::WasAbsent)) => "was absent".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_transaction_is_carried_out_in_one_commit() {
    let resources = Resources::new(Store::memory());
    run(&resources, &bundle("transaction", &[&put("old", ""), &put("kept", "")])).await.unwrap();
    let entries = [
        format!(
            r#"{{"fullUrl":"urn:uuid:o","resource":{{"resourceType":"Observation","subject":{{"reference":"urn:uuid:p"}}}},{}}}"#,
            request("POST", "Observation", "")
        ),
        format!(
            r#"{{"fullUrl":"urn:uuid:p","resource":{{"resourceType":"Patient","id":"ignored"}},{}}}"#,
            request("POST", "Patient", "")
        ),
        put("kept", r#","ifMatch":"W/\"1\"""#),
        format!("{{{}}}", request("DELETE", "Basic/old", "")),
        format!("{{{}}}", request("DELETE", "Basic/never", "")),
        format!("{{{}}}", request("GET", "Basic/unknown", "")),
    ];
    let entries: Vec<_> = entries.iter().map(String::as_str).collect();
    let answer = run(&resources, &bundle("transaction", &entries)).await.unwrap();
    let lines: Vec<_> = answer.iter().map(told).collect();
    assert_eq!(
        lines,
        [
            "created Observation/new-1 1",
            "created Patient/new-2 1",
            "updated Basic/kept 2",
            "deleted 2",
            "was absent",
            "Basic/unknown is not known"
        ]
    );
    let Ok(Done::Created(observation)) = &answer[0] else { panic!("it was created") };
    assert!(observation.bytes.ends_with(br#""subject":{"reference":"Patient/new-2"}}"#));
}

#[tokio::test]
async fn a_transaction_that_fails_leaves_nothing() {
    let resources = Resources::new(Store::memory());
    for (second, expected) in [
        (put("b", r#","ifMatch":"W/\"7\"""#), "Basic/b has changed: read it again and repeat the change"),
        (put("a", ""), "Bundle.entry[1]: its resource stands in the transaction twice"),
        (put("b", r#","ifMatch":"7""#), "Bundle.entry[1]: its ifMatch is not of the form W/\"3\""),
        (
            put("b", "").replace("\"id\":\"b\"", "\"id\":\"c\""),
            "Bundle.entry[1]: 'id' is 'c', but the address says 'b'",
        ),
        (r#"{"resource":{}}"#.to_owned(), "Bundle.entry[1]: it has no request"),
        (format!("{{{}}}", request("PUT", "Basic/b", "")), "Bundle.entry[1]: it has no resource"),
        (
            format!("{{{}}}", request("PATCH", "Basic/b", "")),
            "Bundle.entry[1]: its method is none of DELETE, GET, POST, PUT",
        ),
        (
            format!("{{{}}}", request("GET", "Basic?code=1", "")),
            "Bundle.entry[1]: searches and conditional requests are not supported",
        ),
        (
            format!("{{{}}}", request("DELETE", "Pony/b", "")),
            "Bundle.entry[1]: its url does not name a resource type of FHIR R4",
        ),
        (
            format!("{{{}}}", request("POST", "Basic/b", "")),
            "Bundle.entry[1]: the url of a POST is a resource type",
        ),
    ] {
        let error = run(&resources, &bundle("transaction", &[&put("a", ""), &second])).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(resources.store().last_seq(), Seq::ZERO, "{expected}");
    }
}

#[tokio::test]
async fn a_batch_does_each_entry_for_itself() {
    let resources = Resources::new(Store::memory());
    let get = format!("{{{}}}", request("GET", "Basic/c", ""));
    let entries = [&*put("a", ""), &put("b", r#","ifMatch":"W/\"7\"""#), "{}", &put("a", ""), &get];
    let plan = resources.plan(bundle("batch", &entries).as_bytes(), new_ids()).unwrap();
    let touched: Vec<_> =
        plan.entries.iter().flatten().map(|entry| (entry.action, entry.kind, &*entry.id)).collect();
    assert_eq!(
        touched,
        [
            (Action::Update, "Basic", "a"),
            (Action::Update, "Basic", "b"),
            (Action::Update, "Basic", "a"),
            (Action::Read, "Basic", "c")
        ]
    );
    let answer = resources.carry_out(plan, now()).await.unwrap();
    assert_eq!(
        answer.iter().map(told).collect::<Vec<_>>(),
        [
            "created Basic/a 1",
            "Basic/b has changed: read it again and repeat the change",
            "Bundle.entry[2]: it has no request",
            "updated Basic/a 2",
            "Basic/c is not known",
        ]
    );
}

#[test]
fn what_is_no_bundle_of_requests() {
    let resources = Resources::new(Store::memory());
    let refused = |body: &str| resources.plan(body.as_bytes(), new_ids()).unwrap_err();
    assert_eq!(refused("[]"), BodyError::NoType);
    assert!(matches!(refused(r#"{"resourceType":"Patient"}"#), BodyError::WrongType { .. }));
    assert!(matches!(refused(r#"{"resourceType":"Bundle"}"#), BodyError::BadBundle(_)));
    assert_eq!(refused(&bundle("collection", &[])), BodyError::BundleType("collection".into()));
}
