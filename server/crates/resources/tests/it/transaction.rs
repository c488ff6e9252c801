//! Tests of Bundles of requests.

use std::pin::pin;
use std::sync::Arc;

use store::shared_memory::{SharedMemory, StoppingLink, StoreStep};
use store::{DatabaseLimits, DatabaseUrl, Seq, Store, Versions};
use test_database::TestDatabase;
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::{
    DeleteResult, EntryAction, EntryResult, ResourceBodyError, ResourceError, Resources, Restriction,
};

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

async fn run(
    resources: &Resources,
    bundle: &str,
) -> Result<Vec<Result<EntryResult, ResourceError>>, ResourceError> {
    let plan = resources.plan(bundle.as_bytes(), new_ids(), now())?;
    resources.carry_out(plan, now()).await
}

/// Describes the result of each entry, and reads what the entries read.
async fn described(resources: &Resources, results: &[Result<EntryResult, ResourceError>]) -> Vec<String> {
    let mut lines = Vec::new();
    for result in results {
        lines.push(match result {
            Ok(EntryResult::Created(stored)) => {
                format!("created {}/{} {}", stored.kind, stored.id, stored.version)
            }
            Ok(EntryResult::Updated(stored)) => {
                format!("updated {}/{} {}", stored.kind, stored.id, stored.version)
            }
            Ok(EntryResult::Found(stored)) => {
                format!("found {}/{} {}", stored.kind, stored.id, stored.version)
            }
            Ok(EntryResult::Outdated(_)) => unreachable!("it is not an import"),
            Ok(EntryResult::Read(read)) => match resources.read_entry(read).await {
                Ok(resource) => format!("read {}/{} {}", resource.kind, resource.id, resource.version),
                Err(error) => error.to_string(),
            },
            Ok(EntryResult::Deleted(DeleteResult::Deleted(tombstone))) => {
                format!("deleted {}", tombstone.version)
            }
            Ok(EntryResult::Deleted(DeleteResult::WasAbsent)) => "was absent".to_owned(),
            Err(error) => error.to_string(),
        });
    }
    lines
}

/// Returns the text of the resource that an entry created.
async fn created_text(resources: &Resources, result: &Result<EntryResult, ResourceError>) -> String {
    let Ok(EntryResult::Created(stored)) = result else { panic!("{result:?}") };
    assert!(stored.bytes.is_empty(), "results are without their bytes");
    let resource = resources.read(stored.kind, &stored.id).await.unwrap();
    String::from_utf8(resource.bytes.to_vec()).unwrap()
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
    let response = run(&resources, &bundle("transaction", &entries)).await.unwrap();
    let lines = described(&resources, &response).await;
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
    let observation = created_text(&resources, &response[0]).await;
    assert!(observation.ends_with(r#""subject":{"reference":"Patient/new-2"}}"#));
}

/// The refusal of an `ifNoneMatch` that this server does not support.
const ONLY_ABSENT: &str =
    "Bundle.entry[1]: ifNoneMatch is accepted as \"*\" with a PUT to a type and an id, without ifMatch";

#[tokio::test]
async fn a_put_that_must_create_is_refused_for_a_resource_that_exists() {
    let resources = Resources::new(Store::memory());
    let entries = [&*put("a", r#","ifNoneMatch":"*""#), &put("b", "")];
    let lines =
        described(&resources, &run(&resources, &bundle("transaction", &entries)).await.unwrap()).await;
    assert_eq!(lines, ["created Basic/a 1", "created Basic/b 1"]);
    let error = run(&resources, &bundle("transaction", &entries)).await.unwrap_err();
    assert!(matches!(error, ResourceError::VersionConflict { .. }), "{error}");
    resources.delete("Basic", "a", None, now()).await.unwrap();
    let lines = described(&resources, &run(&resources, &bundle("batch", &entries)).await.unwrap()).await;
    assert_eq!(lines, ["created Basic/a 3", "updated Basic/b 2"]);
}

#[tokio::test]
async fn a_url_may_begin_with_a_slash() {
    let entries = [
        &*put("a", "").replace("Basic/a", "/Basic/a"),
        &format!(r#"{{"resource":{{"resourceType":"Basic"}},{}}}"#, request("POST", "/Basic", "")),
        &format!("{{{}}}", request("GET", "/Basic/z", "")),
        &format!("{{{}}}", request("DELETE", "/Basic?_id=none", "")),
    ];
    for kind in ["transaction", "batch"] {
        let resources = Resources::new(Store::memory());
        run(&resources, &bundle("batch", &[&put("z", "")])).await.unwrap();
        let results = run(&resources, &bundle(kind, &entries)).await.unwrap();
        let lines = described(&resources, &results).await;
        assert!(lines[0].contains("Basic/a") && lines[1].starts_with("created Basic/new"), "{lines:?}");
        assert!(lines[2].starts_with("read Basic/z") && lines[3] == "was absent", "{lines:?}");
    }
    let others = [
        format!("{{{}}}", request("GET", "/Basic?_id=a", "")),
        format!("{{{}}}", request("GET", "/CodeSystem/$lookup?code=x", "")),
    ];
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    let resources = Resources::new(Store::memory());
    let plan = resources.plan(bundle("batch", &others).as_bytes(), new_ids(), now()).unwrap();
    assert_eq!((plan.searches[0].kind, &*plan.operations[0].path), ("Basic", "CodeSystem/$lookup"));
}

#[tokio::test]
async fn a_failed_transaction_writes_nothing() {
    let resources = Resources::new(Store::memory());
    for (second, expected) in [
        (put("b", r#","ifMatch":"W/\"7\"""#), "Basic/b has changed: read it again and repeat the change"),
        (put("a", ""), "Bundle.entry[1]: the transaction contains its resource twice"),
        (put("b", r#","ifMatch":"7""#), "Bundle.entry[1]: its ifMatch is not of the form W/\"3\""),
        (
            put("b", "").replace("\"id\":\"b\"", "\"id\":\"c\""),
            "Bundle.entry[1]: 'id' is 'c', but the URL has 'b'",
        ),
        (r#"{"resource":{}}"#.to_owned(), "Bundle.entry[1]: it has no request"),
        (format!("{{{}}}", request("PUT", "Basic/b", "")), "Bundle.entry[1]: it has no resource"),
        (
            format!("{{{}}}", request("PATCH", "Basic/b", "")),
            "Bundle.entry[1]: its method must be DELETE, GET, POST or PUT",
        ),
        (
            format!("{{{}}}", request("GET", "Basic?code=1", "")),
            "Bundle.entry[1]: searches are accepted only in a batch, by GET",
        ),
        (
            format!("{{{}}}", request("DELETE", "Basic?colour=red", "")),
            "Bundle.entry[1]: Basic?colour: 'colour' is not a search parameter that is supported for Basic",
        ),
        (
            put("b", r#","ifNoneExist":"code=1""#),
            "Bundle.entry[1]: ifNoneExist is accepted only with a POST to a resource type",
        ),
        (
            format!("{{{}}}", request("POST", "Basic", r#","ifMatch":"W/\"1\"""#)),
            "Bundle.entry[1]: ifMatch is not accepted with a POST, because the resource is new",
        ),
        (put("b", r#","ifNoneMatch":"W/\"1\"""#), ONLY_ABSENT),
        (put("b", r#","ifNoneMatch":"*","ifMatch":"W/\"1\"""#), ONLY_ABSENT),
        (format!("{{{}}}", request("GET", "Basic/b", r#","ifNoneMatch":"*""#)), ONLY_ABSENT),
        (format!("{{{}}}", request("DELETE", "Basic/b", r#","ifNoneMatch":"*""#)), ONLY_ABSENT),
        (
            format!("{{{}}}", request("DELETE", "Basic/b?code=1", "")),
            "Bundle.entry[1]: its url is a resource type and a search",
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
        assert_eq!(resources.store().last_seq().await.unwrap(), Seq::ZERO, "{expected}");
    }
}

#[tokio::test]
async fn a_batch_processes_each_entry_separately() {
    let resources = Resources::new(Store::memory());
    let get = format!("{{{}}}", request("GET", "Basic/c", ""));
    let entries = [&*put("a", ""), &put("b", r#","ifMatch":"W/\"7\"""#), "{}", &put("a", ""), &get];
    let plan = resources.plan(bundle("batch", &entries).as_bytes(), new_ids(), now()).unwrap();
    let touched: Vec<_> =
        plan.entries.iter().flatten().map(|entry| (entry.action, entry.kind, &*entry.id)).collect();
    assert_eq!(
        touched,
        [
            (EntryAction::Update, "Basic", "a"),
            (EntryAction::Update, "Basic", "b"),
            (EntryAction::Update, "Basic", "a"),
            (EntryAction::Read, "Basic", "c")
        ]
    );
    let response = resources.carry_out(plan, now()).await.unwrap();
    assert_eq!(
        described(&resources, &response).await,
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
fn bundles_without_requests_are_rejected() {
    let resources = Resources::new(Store::memory());
    let plan_error = |body: &str| resources.plan(body.as_bytes(), new_ids(), now()).unwrap_err();
    assert_eq!(plan_error("[]"), ResourceBodyError::NoType);
    assert!(matches!(plan_error(r#"{"resourceType":"Patient"}"#), ResourceBodyError::WrongType { .. }));
    assert!(matches!(plan_error(r#"{"resourceType":"Bundle"}"#), ResourceBodyError::BadBundle(_)));
    assert_eq!(plan_error(&bundle("collection", &[])), ResourceBodyError::BundleType("collection".into()));
}

/// Returns a Patient with an identifier of this value.
fn patient(value: &str, more: &str) -> String {
    format!(r#"{{"resourceType":"Patient","identifier":[{{"value":"{value}"}}]{more}}}"#)
}

#[tokio::test]
async fn a_conditional_create_uses_the_found_resource_and_references_point_to_it() {
    let resources = Resources::new(Store::memory());
    let create = |name: &str, value: &str| {
        let unless = format!(r#","ifNoneExist":"identifier={value}""#);
        let request = request("POST", "Patient", &unless);
        format!(r#"{{"fullUrl":"urn:uuid:{name}","resource":{},{request}}}"#, patient(value, ""))
    };
    let observation = |name: &str| {
        format!(
            r#"{{"resource":{{"resourceType":"Observation","subject":{{"reference":"urn:uuid:{name}"}}}},{}}}"#,
            request("POST", "Observation", "")
        )
    };
    let (first, second) = (create("a", "1"), create("b", "2"));
    let (of_first, of_second) = (observation("a"), observation("b"));
    let answer = run(&resources, &bundle("transaction", &[&first, &of_first])).await.unwrap();
    assert_eq!(
        described(&resources, &answer).await,
        ["created Patient/new-1 1", "created Observation/new-2 1"]
    );
    let entries = [&*of_first, &*first, &*second, &*of_second];
    let plan =
        resources.plan(bundle("transaction", &entries).as_bytes(), || format!("later-{}", rand()), now());
    let plan = plan.unwrap();
    let conditional: Vec<_> = plan.entries.iter().flatten().map(|entry| entry.is_conditional()).collect();
    assert_eq!(conditional, [false, true, true, false]);
    let response = resources.carry_out(plan, now()).await.unwrap();
    let lines = described(&resources, &response).await;
    assert_eq!(lines[1], "found Patient/new-1 1");
    let reference = async |index: usize| {
        let text = created_text(&resources, &response[index]).await;
        text.split("\"reference\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    assert_eq!(reference(0).await, "Patient/new-1");
    let Ok(EntryResult::Created(second)) = &response[2] else { panic!("{lines:?}") };
    assert_eq!(reference(3).await, format!("Patient/{}", second.id));
    // The compartment of the Observation is that of the found Patient.
    let scan = store::ScanOptions::at(Seq::LATEST);
    let observations =
        resources.store().scan_compartment("Patient/new-1", "Observation", scan).await.unwrap();
    assert_eq!(observations.versions.len(), 2);
}

/// Returns a number that was not returned before.
fn rand() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test]
async fn conditional_updates_and_deletes_apply_to_the_found_resource() {
    let resources = Resources::new(Store::memory());
    let put = |value: &str, more: &str| {
        let request = request("PUT", &format!("Patient?identifier={value}"), "");
        format!(r#"{{"resource":{},{request}}}"#, patient(value, more))
    };
    let delete =
        |value: &str| format!("{{{}}}", request("DELETE", &format!("Patient?identifier={value}"), ""));
    let ask = async |kind: &str, entries: &[&str]| {
        let response = run(&resources, &bundle(kind, entries)).await;
        match response {
            Ok(results) => Ok(described(&resources, &results).await),
            Err(error) => Err(error.to_string()),
        }
    };
    let (own, again) = (put("1", r#","id":"own""#), put("1", r#","active":true"#));
    let batch =
        ask("batch", &[&own, &again, &put("1", r#","id":"other""#), &delete("2"), &put("2", "")]).await;
    let expected = [
        "created Patient/own 1",
        "updated Patient/own 2",
        "'id' is 'other', but the URL has 'own'",
        "was absent",
        "created Patient/new-3 1",
    ];
    assert_eq!(batch.unwrap(), expected);
    let twice = ask("transaction", &[&again, &delete("1")]).await;
    assert_eq!(twice.unwrap_err(), "Bundle.entry[1]: the transaction contains its resource twice");
    let several = format!(r#"{{"resource":{},{}}}"#, patient("1", ""), request("POST", "Patient", ""));
    ask("batch", &[&several]).await.unwrap();
    let seq = resources.store().last_seq().await.unwrap();
    assert!(ask("transaction", &[&put("3", ""), &delete("1")]).await.unwrap_err().contains("Patient"));
    assert_eq!(resources.store().last_seq().await.unwrap(), seq, "nothing was written");
    assert_eq!(ask("transaction", &[&delete("2"), &delete("4")]).await.unwrap(), ["deleted 2", "was absent"]);
}

fn practitioner(id: &str, npi: &str, method: &str, url: &str) -> String {
    let identifier = format!(r#"[{{"system":"urn:npi","value":"{npi}"}}]"#);
    let request = request(method, url, "");
    format!(
        r#"{{"resource":{{"resourceType":"Practitioner","id":"{id}","identifier":{identifier}}},{request}}}"#
    )
}

fn observation(performer: &str) -> String {
    let request = request("PUT", "Observation/o", "");
    format!(
        r#"{{"resource":{{"resourceType":"Observation","id":"o","performer":[{{"reference":"{performer}"}}]}},{request}}}"#
    )
}

#[tokio::test]
async fn conditional_references_are_resolved_to_the_only_match() {
    let resources = Resources::new(Store::memory());
    let resources_before = [
        practitioner("one", "1", "PUT", "Practitioner/one"),
        practitioner("two", "2", "PUT", "Practitioner/two"),
        practitioner("also-two", "2", "PUT", "Practitioner/also-two"),
    ];
    run(&resources, &bundle("transaction", &resources_before.each_ref().map(String::as_str))).await.unwrap();
    let performer = async || {
        let observation = resources.read("Observation", "o").await.unwrap();
        let value: serde_json::Value = serde_json::from_slice(&observation.bytes).unwrap();
        value["performer"][0]["reference"].as_str().unwrap().to_owned()
    };
    let refer = |npi: &str| observation(&format!("Practitioner?identifier=urn:npi|{npi}"));

    run(&resources, &bundle("transaction", &[&refer("1")])).await.unwrap();
    assert_eq!(performer().await, "Practitioner/one");
    let missing = run(&resources, &bundle("transaction", &[&refer("3")])).await;
    let reference = "Practitioner?identifier=urn:npi|3".to_owned();
    assert_eq!(missing, Err(ResourceError::NoMatch { reference }));
    let several = run(&resources, &bundle("transaction", &[&refer("2")])).await;
    assert_eq!(several, Err(ResourceError::Several { kind: "Practitioner".to_owned() }));
    assert_eq!(performer().await, "Practitioner/one");

    // Resources that the same transaction writes match in their new version, and only in that.
    let created = practitioner("", "3", "POST", "Practitioner");
    run(&resources, &bundle("transaction", &[&refer("3"), &created])).await.unwrap();
    assert_eq!(performer().await, "Practitioner/new-1");
    let other = practitioner("two", "4", "PUT", "Practitioner/two");
    run(&resources, &bundle("transaction", &[&refer("2"), &other])).await.unwrap();
    assert_eq!(performer().await, "Practitioner/also-two");

    let bad = run(&resources, &bundle("transaction", &[&observation("Practitioner?shoe-size=1")])).await;
    let reason = "Bundle.entry[0]: reference 'Practitioner?shoe-size=1': Practitioner?shoe-size: 'shoe-size' is not a \
               search parameter that is supported for Practitioner";
    assert_eq!(bad.unwrap_err().to_string(), reason);
    // In a batch, the text stays as it is.
    run(&resources, &bundle("batch", &[&refer("1")])).await.unwrap();
    assert_eq!(performer().await, "Practitioner?identifier=urn:npi|1");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_conditional_creates_at_the_same_time_create_one_resource() {
    let dir = tempfile::tempdir().unwrap();
    create_once(&[Resources::new(Store::open(dir.path()).unwrap())]).await;
    // Nodes on the same database.
    if let Some(database) = TestDatabase::shared() {
        let url = DatabaseUrl::new(database.create().unwrap(), None);
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Resources::new(Store::postgres(&url, DatabaseLimits::default()).await.unwrap()));
        }
        create_once(&nodes).await;
    }
}

#[tokio::test]
async fn a_node_that_is_paused_during_a_conditional_create_creates_no_duplicate() {
    // The second search has no indexed parameter.
    for search in ["identifier=urn:npi|1", "name:contains=ada"] {
        let create = async |store: &Store| {
            let filter = TypeFilter::read(&format!("Patient?{search}"), "", now()).unwrap();
            let body = r#"{"resourceType":"Patient","identifier":[{"system":"urn:npi","value":"1"}],"name":[{"text":"Ada"}]}"#;
            let resources = Resources::new(store.clone());
            let view = resources.restricted_to(Restriction::None);
            let id = format!("p{}", store.heard_seq());
            view.create_unless(&view, &filter, body.as_bytes(), id, now()).await.unwrap().created
        };
        let mut stops = 0;
        loop {
            let (shared, link) = (SharedMemory::default(), Arc::<StoppingLink>::default());
            let slow = Store::shared_memory(&shared, Arc::<StoppingLink>::clone(&link));
            let fast = Store::shared_memory(&shared, Arc::<StoppingLink>::default());
            let stop = link.stop_at(StoreStep::Request, stops);
            let mut late = pin!(create(&slow));
            tokio::select! {
                biased;
                is_created = &mut late => {
                    assert!(is_created);
                    break;
                }
                () = stop.reached() => {}
            }
            let is_created = create(&fast).await;
            stop.release();
            assert_ne!(late.await, is_created, "{search}: stopped at request {stops}");
            stops += 1;
        }
        assert!(stops >= 3, "the search and the write are several requests");
    }
}

/// Another node deletes what a search of a transaction has found, before each request of the transaction to
/// the store. A reference never refers to a resource that was deleted before the transaction.
#[tokio::test]
async fn what_a_search_of_a_transaction_has_found_exists_at_its_commit() {
    let patient = r#"{"resourceType":"Patient","id":"p","identifier":[{"system":"urn:a","value":"1"}]}"#;
    let observation = |subject: &str| {
        let resource = format!(
            r#"{{"resourceType":"Observation","id":"o","status":"final","code":{{"text":"x"}},"subject":{{"reference":"{subject}"}}}}"#
        );
        format!(r#"{{"resource":{resource},{}}}"#, request("PUT", "Observation/o", ""))
    };
    let conditional_create = conditional("POST", "1", "").replacen('{', r#"{"fullUrl":"urn:uuid:p","#, 1);
    for entries in [
        &[&*conditional_create, &observation("urn:uuid:p")][..],
        &[&observation("Patient?identifier=urn:a|1")],
    ] {
        let transaction = bundle("transaction", entries);
        let mut stops = 0;
        loop {
            let (shared, link) = (SharedMemory::default(), Arc::<StoppingLink>::default());
            let slow = Resources::new(Store::shared_memory(&shared, Arc::<StoppingLink>::clone(&link)));
            let fast = Resources::new(Store::shared_memory(&shared, Arc::<StoppingLink>::default()));
            fast.update("Patient", "p", patient.as_bytes(), None, now()).await.unwrap();
            let stop = link.stop_at(StoreStep::Request, stops);
            let mut late = pin!(run(&slow, &transaction));
            let is_over = tokio::select! {
                biased;
                done = &mut late => {
                    done.unwrap();
                    true
                }
                () = stop.reached() => false,
            };
            if is_over {
                break;
            }
            fast.delete("Patient", "p", None, now()).await.unwrap();
            stop.release();
            match late.await {
                Ok(_) => {
                    let seq = fast.store().last_seq().await.unwrap();
                    let key = store::ResourceKey::new("Observation", "o");
                    let version = fast.store().read(&key, seq).await.unwrap().unwrap();
                    let text = String::from_utf8(version.body.unwrap().to_vec()).unwrap();
                    let id = text.split("Patient/").nth(1).unwrap().split('"').next().unwrap();
                    let subject = store::ResourceKey::new("Patient", id);
                    let subject = fast.store().read(&subject, version.seq).await.unwrap().unwrap();
                    assert!(!subject.is_deleted(), "stopped at request {stops}: {text}");
                }
                Err(error) => {
                    let is_refused = matches!(error, ResourceError::NoMatch { .. });
                    assert!(entries.len() == 1 && is_refused, "stopped at request {stops}: {error}");
                }
            }
            stops += 1;
        }
        assert!(stops >= 3, "the search and the write are several requests");
    }
}

/// Sends equal conditional creates to nodes.
async fn create_once(nodes: &[Resources]) {
    let resources = &nodes[0];
    // The second search has no indexed parameter.
    for search in ["identifier=urn:npi|1", "name:contains=ada"] {
        let create = |at: usize| {
            let resources = nodes[at % nodes.len()].clone();
            tokio::spawn(async move {
                let filter = TypeFilter::read(&format!("Patient?{search}"), "", now()).unwrap();
                let body = r#"{"resourceType":"Patient","identifier":[{"system":"urn:npi","value":"1"}],"name":[{"text":"Ada"}]}"#;
                let view = resources.restricted_to(Restriction::None);
                let id = format!("{}-{at}", search.len());
                view.create_unless(&view, &filter, body.as_bytes(), id, now()).await.unwrap().created
            })
        };
        let tasks: Vec<_> = (0..32).map(create).collect();
        let mut created = 0;
        for task in tasks {
            created += usize::from(task.await.unwrap());
        }
        assert_eq!(created, 1, "{search}");
        let filter = TypeFilter::read("Patient?identifier=1", "", now()).unwrap();
        let view = resources.restricted_to(Restriction::None);
        let patients = view.search("Patient", Some(&filter), None, 10).await.unwrap().resources;
        assert_eq!(patients.len(), 1, "{search}");
        resources.delete("Patient", &patients[0].id, None, now()).await.unwrap();
    }
}

/// A conditional entry for a Patient with an identifier.
fn conditional(method: &str, identifier: &str, more: &str) -> String {
    let patient = format!(
        r#"{{"resourceType":"Patient","identifier":[{{"system":"urn:a","value":"{identifier}"}}]{more}}}"#
    );
    let request = match method {
        "POST" => request("POST", "Patient", &format!(r#","ifNoneExist":"identifier=urn:a|{identifier}""#)),
        method => request(method, &format!("Patient?identifier=urn:a|{identifier}"), ""),
    };
    format!(r#"{{"resource":{patient},{request}}}"#)
}

#[tokio::test]
async fn equal_conditional_creates_of_a_transaction_create_one_resource() {
    let resources = Resources::new(Store::memory());
    let [first, other] = ["1", "2"].map(|identifier| conditional("POST", identifier, ""));
    // The second is found by another search with the same result.
    let same = first.replace("identifier=urn:a|1", "identifier=1");
    for round in 0..2 {
        let results =
            run(&resources, &bundle("transaction", &[&first, &first, &other, &same])).await.unwrap();
        let ids: Vec<_> = results
            .iter()
            .map(|entry| match entry.as_ref().unwrap() {
                EntryResult::Created(stored) => (true, stored.id.clone()),
                EntryResult::Found(stored) => (false, stored.id.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        let created: Vec<_> = ids.iter().map(|(created, _)| *created).collect();
        let expected = if round == 0 { [true, false, true, false] } else { [false; 4] };
        assert_eq!(created, expected, "round {round}");
        assert!(ids[0].1 == ids[1].1 && ids[0].1 == ids[3].1 && ids[0].1 != ids[2].1, "{ids:?}");
    }
}

#[tokio::test]
async fn conditional_updates_of_a_transaction_that_reach_one_resource_are_refused() {
    let resources = Resources::new(Store::memory());
    let [put, changed] = ["", r#","active":true"#].map(|more| conditional("PUT", "1", more));
    let create = conditional("POST", "1", "");
    // Before the resource exists, and after.
    for _ in 0..2 {
        for entries in [[&put, &changed], [&create, &changed]] {
            let result = run(&resources, &bundle("transaction", &[entries[0], entries[1]])).await;
            let exists = resources.restricted_to(Restriction::None);
            let filter = TypeFilter::read("Patient?identifier=1", "", now()).unwrap();
            let patients = exists.search("Patient", Some(&filter), None, 10).await.unwrap().resources;
            match result {
                Err(ResourceError::Body(_)) => {}
                // A create that finds the resource writes nothing, so that only the update does.
                Ok(results) if entries[0] == &create && !patients.is_empty() => assert_eq!(results.len(), 2),
                result => panic!("{result:?}"),
            }
            assert!(patients.len() <= 1, "{patients:?}");
        }
        run(&resources, &bundle("transaction", &[&put])).await.unwrap();
    }
}

#[tokio::test]
async fn if_match_of_a_conditional_entry_applies_to_what_is_found() {
    let resources = Resources::new(Store::memory());
    let matching = |version: u64| {
        let entry = conditional("PUT", "1", "");
        entry.replace(r#""method":"PUT""#, &format!(r#""method":"PUT","ifMatch":"W/\"{version}\"""#))
    };
    let run = async |entry: &str| run(&resources, &bundle("transaction", &[entry])).await;
    assert!(matches!(run(&matching(1)).await, Err(ResourceError::PreconditionFailed { .. })));
    run(&conditional("PUT", "1", "")).await.unwrap();
    assert!(matches!(run(&matching(2)).await, Err(ResourceError::PreconditionFailed { .. })));
    run(&matching(1)).await.unwrap();
    assert!(matches!(run(&matching(1)).await, Err(ResourceError::PreconditionFailed { .. })));
}
