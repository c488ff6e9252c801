//! Tests of create, update, delete, read and history, and of restricted views.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use store::{CpuBudget, PageLimit, Seq, Store};
use trefoil_resources::filter::TypeFilter;
use trefoil_resources::result::sort::SortKey;
use trefoil_resources::{DeleteResult, ExpectedVersion, ResourceError, Resources, Restriction, Tombstone};

use crate::now;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_resource_is_created_changed_deleted_and_has_a_history() {
    let resources = Resources::new(Store::memory());
    let created = resources
        .create("Basic", "b".into(), br#"{"resourceType":"Basic","id":"mine","x":1.50}"#, now())
        .await
        .unwrap();
    assert_eq!(
        text(&created.bytes),
        r#"{"resourceType":"Basic","id":"b","meta":{"versionId":"1","lastUpdated":"2023-11-14T22:13:20.000Z"},"x":1.50}"#
    );
    assert_eq!((created.version, created.updated), (1, now()));
    assert_eq!(resources.read("Basic", "b").await.unwrap(), created);

    // The JSON of a read can be sent as an update without changes.
    let updated = resources.update("Basic", "b", &created.bytes, Some(1), now()).await.unwrap();
    assert!(!updated.created);
    assert_eq!(
        text(&updated.stored.bytes),
        r#"{"resourceType":"Basic","id":"b","meta":{"versionId":"2","lastUpdated":"2023-11-14T22:13:20.000Z"},"x":1.50}"#
    );
    let stale = resources.update("Basic", "b", &created.bytes, Some(1), now()).await;
    assert_eq!(stale, Err(ResourceError::VersionConflict { key: "Basic/b".into() }));

    assert!(resources.delete("Basic", "b", Some(1), now()).await.is_err());
    let tombstone = Tombstone { kind: "Basic", id: "b".to_owned(), version: 3, compartments: Vec::new() };
    assert_eq!(resources.delete("Basic", "b", None, now()).await.unwrap(), DeleteResult::Deleted(tombstone));
    assert_eq!(resources.delete("Basic", "b", None, now()).await.unwrap(), DeleteResult::WasAbsent);
    let gone = ResourceError::Gone { kind: "Basic".into(), id: "b".into() };
    assert_eq!(resources.read("Basic", "b").await, Err(gone.clone()));
    assert_eq!(resources.read_version("Basic", "b", 3).await, Err(gone));
    assert_eq!(resources.read_version("Basic", "b", 1).await.unwrap(), created);
    let response = resources.read_version("Basic", "b", 4).await.unwrap_err();
    assert_eq!(response.to_string(), "Basic/b/_history/4 is not known");

    let history = resources.history("Basic", "b", Seq::LATEST, PageLimit::default()).await.unwrap();
    assert_eq!(history.iter().map(|version| version.version).collect::<Vec<_>>(), [3, 2, 1]);
}

#[tokio::test]
async fn an_update_may_create() {
    let resources = Resources::new(Store::memory());
    let body = br#"{"resourceType":"Basic","id":"b"}"#;
    let result = resources.update("Basic", "b", body, Some(1), now()).await;
    assert!(matches!(result, Err(ResourceError::VersionConflict { .. })));
    assert!(resources.update("Basic", "b", body, None, now()).await.unwrap().created);
    assert!(!resources.update("Basic", "b", body, None, now()).await.unwrap().created);
    let result = resources.create("Basic", "b".into(), body, now()).await;
    assert!(matches!(result, Err(ResourceError::VersionConflict { .. })));
    for (kind, id) in [("Basic", "c"), ("Patient", "b"), ("Basic", "no id")] {
        let result = resources.update(kind, id, body, None, now()).await;
        assert!(matches!(result, Err(ResourceError::Body(_))), "{kind}/{id}");
    }
    let unknown = resources.read("Basic", "c").await;
    assert_eq!(unknown, Err(ResourceError::NotFound { kind: "Basic".into(), id: "c".into() }));
}

#[tokio::test]
async fn shared_resources_are_readable_but_not_writable() {
    let resources = Resources::new(Store::memory());
    let mine = resources.restricted_to(Restriction::patients(vec!["me"]));
    let body = |id: &str, subject: &str, performer: &str| {
        let reference = |id: &str| format!(r#"{{"reference":"Patient/{id}"}}"#);
        let (subject, performer) = (reference(subject), reference(performer));
        format!(
            r#"{{"resourceType":"Observation","id":"{id}","subject":{subject},"performer":[{performer}]}}"#
        )
    };
    let of_both = body("o", "you", "me");
    let result = mine.create("Observation", "o".into(), of_both.as_bytes(), now()).await;
    assert!(matches!(result, Err(ResourceError::Outside { .. })));
    let result = mine.update("Observation", "o", of_both.as_bytes(), None, now()).await;
    assert!(matches!(result, Err(ResourceError::Outside { .. })));

    resources.update("Observation", "o", of_both.as_bytes(), None, now()).await.unwrap();
    assert!(mine.read("Observation", "o").await.is_ok());
    let other_body = body("o", "me", "me");
    let result = mine.update("Observation", "o", other_body.as_bytes(), None, now()).await;
    assert!(matches!(result, Err(ResourceError::Outside { .. })));
    let result = mine.delete("Observation", "o", None, now()).await;
    assert!(matches!(result, Err(ResourceError::Outside { .. })));

    let own = body("p", "me", "me");
    mine.create("Observation", "p".into(), own.as_bytes(), now()).await.unwrap();
    assert!(!mine.update("Observation", "p", own.as_bytes(), None, now()).await.unwrap().created);
}

#[tokio::test]
async fn a_restricted_write_does_not_reveal_which_ids_exist_outside() {
    let resources = Resources::new(Store::memory());
    let mine = resources.restricted_to(Restriction::patients(["me"]));
    let body = |id: &str, subject: &str| {
        format!(
            r#"{{"resourceType":"Observation","id":"{id}","subject":{{"reference":"Patient/{subject}"}}}}"#
        )
    };
    resources.update("Observation", "taken", body("taken", "you").as_bytes(), None, now()).await.unwrap();
    let mut answers = Vec::new();
    for id in ["taken", "free"] {
        for expected in [
            ExpectedVersion::Anything,
            ExpectedVersion::Absent,
            ExpectedVersion::Present,
            ExpectedVersion::Version(1),
        ] {
            let put = mine.update("Observation", id, body(id, "me").as_bytes(), expected, now()).await;
            let deleted = mine.delete("Observation", id, expected, now()).await;
            let text = format!("{put:?} {deleted:?}");
            assert!(put.is_err(), "{text}");
            answers.push(text.replace(id, "ID"));
        }
    }
    assert_eq!(answers[..4], answers[4..]);
}

/// Each member that decides whose data a carer sees, with values that a token for the patient may try.
#[tokio::test]
async fn a_view_of_patients_never_changes_whom_a_carer_sees() {
    let resources = Resources::new(Store::memory());
    let mine = resources.restricted_to(Restriction::patients(["me"]));
    let related = json!({
        "resourceType": "RelatedPerson", "id": "r", "active": false,
        "patient": { "reference": "Patient/me" }, "period": { "end": "2020" },
        "identifier": [{ "system": "urn:x", "value": "1" }], "birthDate": "1980",
    });
    let person = json!({
        "resourceType": "Person", "id": "p", "active": true, "birthDate": "1980",
        "link": [{ "target": { "reference": "Patient/me" }, "assurance": "level1" }],
    });
    let of_related = [
        ("active", json!(true)),
        ("active", json!(null)),
        ("period", json!(null)),
        ("period", json!({ "end": "2100" })),
        ("identifier", json!(null)),
        ("identifier", json!([])),
        ("patient", json!({ "reference": "Patient/me", "display": "x" })),
    ];
    let of_person = [
        ("link", json!([{ "target": { "reference": "Patient/me" }, "assurance": "level4" }])),
        ("link", json!([{ "target": { "reference": "Patient/me" } }])),
        ("active", json!(false)),
        ("active", json!(null)),
    ];
    for (stored, kind, changes) in
        [(&related, "RelatedPerson", &of_related[..]), (&person, "Person", &of_person[..])]
    {
        let id = stored["id"].as_str().unwrap();
        resources.update(kind, id, stored.to_string(), None, now()).await.unwrap();
        let with = |member: &str, value: &serde_json::Value| {
            let mut other = stored.clone();
            match value.is_null() {
                true => drop(other.as_object_mut().unwrap().remove(member)),
                false => other[member] = value.clone(),
            }
            other.to_string()
        };
        for (member, value) in changes {
            let result = mine.update(kind, id, with(member, value), None, now()).await;
            let is_about = |error: &ResourceError| matches!(error, ResourceError::Relation { member: found, .. } if found == member);
            assert!(result.as_ref().is_err_and(is_about), "{kind} {member} {value}: {result:?}");
            // A caller for all patients may.
            resources.update(kind, id, with(member, value), None, now()).await.unwrap();
            resources.update(kind, id, stored.to_string(), None, now()).await.unwrap();
        }
        for value in [json!("1990"), json!(null)] {
            mine.update(kind, id, with("birthDate", &value), None, now()).await.unwrap();
        }
        let result = mine.delete(kind, id, None, now()).await;
        assert!(matches!(result, Err(ResourceError::Relation { .. })), "{result:?}");
        // A deleted relation must not come back, even as it was.
        resources.delete(kind, id, None, now()).await.unwrap();
        let result = mine.update(kind, id, stored.to_string(), None, now()).await;
        assert!(matches!(result, Err(ResourceError::Relation { member: "deleted", .. })), "{result:?}");
        // A new one relates nobody.
        mine.create(kind, "new".to_owned(), with("id", &json!("new")), now()).await.unwrap();
    }
}

#[tokio::test]
async fn the_targets_of_a_provenance_must_be_in_the_view() {
    let resources = Resources::new(Store::memory());
    for (id, subject) in [("mine", "me"), ("yours", "you")] {
        let body = format!(
            r#"{{"resourceType":"Observation","id":"{id}","subject":{{"reference":"Patient/{subject}"}}}}"#
        );
        resources.update("Observation", id, body.as_bytes(), None, now()).await.unwrap();
    }
    let mine = resources.restricted_to(Restriction::patients(["me"]));
    let provenance = |target: &str| {
        format!(
            r#"{{"resourceType":"Provenance","target":[{{"reference":"Patient/me"}},{{"reference":"{target}"}}]}}"#
        )
    };
    for (number, target) in
        ["Observation/yours", "Observation/missing", "Observation/yours/_history/1"].into_iter().enumerate()
    {
        let result = mine.create("Provenance", format!("p{number}"), provenance(target), now()).await;
        assert!(matches!(result, Err(ResourceError::Outside { .. })), "{target}");
    }
    mine.create("Provenance", "own".into(), provenance("Observation/mine"), now()).await.unwrap();
    let moved = provenance("Observation/yours").replacen('{', r#"{"id":"own","#, 1);
    let result = mine.update("Provenance", "own", moved.as_bytes(), None, now()).await;
    assert!(matches!(result, Err(ResourceError::Outside { .. })));
}

#[tokio::test]
async fn many_compartments_have_the_same_results_as_few() {
    let resources = Resources::new(Store::memory());
    for number in 0..200 {
        let body = format!(
            r#"{{"resourceType":"Observation","id":"o{number:03}","subject":{{"reference":"Patient/p{}"}}}}"#,
            number % 150
        );
        resources
            .update("Observation", &format!("o{number:03}"), body.as_bytes(), None, now())
            .await
            .unwrap();
    }
    for members in [10, 64, 65, 100] {
        let ids: Vec<_> = (0..members).map(|n| format!("p{n}")).collect();
        let view = resources.restricted_to(Restriction::patients(ids.iter().map(String::as_str)));
        let (mut found, mut from) = (Vec::new(), None::<String>);
        loop {
            let page = view.search("Observation", None, from.as_deref(), 7).await.unwrap();
            found.extend(page.resources.into_iter().map(|resource| resource.id));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        found.sort_unstable();
        let expected = (0..200).filter(|n| n % 150 < members).map(|n| format!("o{n:03}"));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{members}");
    }
}

#[tokio::test]
async fn the_pages_of_a_search_contain_all_resources_and_end() {
    let resources = Resources::new(Store::memory());
    for number in 0..25 {
        let body = format!(
            r#"{{"resourceType":"Observation","id":"o{number:02}","status":"{}","subject":{{"reference":"Patient/p{}"}},"performer":[{{"reference":"Patient/p1"}}]}}"#,
            if number % 3 == 0 { "final" } else { "amended" },
            number % 2
        );
        resources
            .update("Observation", &format!("o{number:02}"), body.as_bytes(), None, now())
            .await
            .unwrap();
    }
    let filter = TypeFilter::read("Observation?status=final", "https://s.example", now()).unwrap();
    for (patients, expected) in
        [(None, 9), (Some(vec!["p0"]), 5), (Some(vec!["p1", "p0"]), 9), (Some(vec![]), 0)]
    {
        let visible = resources.restricted_to(patients.map_or(Restriction::None, Restriction::patients));
        for count in [1, 2, 8, 9, 10] {
            let (mut ids, mut from) = (Vec::new(), None::<String>);
            loop {
                let page =
                    visible.search("Observation", Some(&filter), from.as_deref(), count).await.unwrap();
                assert!(page.resources.len() <= count);
                ids.extend(page.resources.into_iter().map(|resource| resource.id));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            let all = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!((all, ids.len()), (expected, expected), "{count}");
        }
    }
}

#[tokio::test]
async fn the_history_of_resources_outside_is_hidden() {
    let resources = Resources::new(Store::memory());
    for subject in ["p2", "p2", "p1"] {
        let body = format!(
            r#"{{"resourceType":"Observation","id":"o","subject":{{"reference":"Patient/{subject}"}},"status":"final"}}"#
        );
        resources.update("Observation", "o", body.as_bytes(), None, now()).await.unwrap();
    }
    let limit = PageLimit { count: 1, ..PageLimit::default() };
    let visible = resources.restricted_to(Restriction::patients(vec!["p1"]));
    let (page, next) = visible.history("Observation", "o", Seq::LATEST, limit).await.unwrap();
    assert_eq!((page.len(), next.is_some()), (1, true));
    assert_eq!(visible.history("Observation", "o", next.unwrap(), limit).await.unwrap(), (Vec::new(), None));
    let stranger = resources.restricted_to(Restriction::patients(vec!["p3"]));
    assert!(matches!(
        stranger.history("Observation", "o", Seq::LATEST, limit).await,
        Err(ResourceError::NotFound { .. })
    ));
}

#[tokio::test]
async fn the_history_of_a_type_contains_the_versions_in_the_view() {
    let resources = Resources::new(Store::memory());
    for (kind, id, subject) in [
        ("Observation", "a", "p1"),
        ("Basic", "b", "p1"),
        ("Observation", "c", "p2"),
        ("Observation", "a", "p1"),
    ] {
        let body = format!(
            r#"{{"resourceType":"{kind}","id":"{id}","subject":{{"reference":"Patient/{subject}"}},"code":{{"text":"c"}}}}"#
        );
        resources.update(kind, id, body.as_bytes(), None, now()).await.unwrap();
    }
    resources.delete("Observation", "c", None, now()).await.unwrap();
    for (restriction, expected) in [
        (Restriction::None, &[("c", 2), ("a", 2), ("c", 1), ("a", 1)][..]),
        (Restriction::patients(vec!["p1"]), &[("a", 2), ("a", 1)]),
        (Restriction::patients(vec!["p3"]), &[]),
    ] {
        let view = resources.restricted_to(restriction);
        for limit in [PageLimit { count: 1, ..PageLimit::default() }, PageLimit { count: 9, bytes: 1 }] {
            let (mut found, mut before) = (Vec::new(), Some(Seq::LATEST));
            while let Some(end) = before {
                let (page, next) = view.type_history("Observation", end, Seq::ZERO, limit).await.unwrap();
                assert!(page.iter().filter(|version| !version.is_deleted()).count() <= 1, "{limit:?}");
                found.extend(page.into_iter().map(|version| (version.key.id, version.version)));
                before = next;
            }
            let expected: Vec<_> =
                expected.iter().map(|(id, version)| ((*id).to_owned(), *version)).collect();
            assert_eq!(found, expected);
        }
    }
    let view = resources.restricted_to(Restriction::None);
    let (page, next) = view.type_history("Observation", Seq(5), Seq(3), PageLimit::default()).await.unwrap();
    assert_eq!((page.len(), page[0].seq, next), (1, Seq(4), None));
}

#[tokio::test]
async fn a_sorted_search_has_more_matches_than_its_pages_reach() {
    let resources = Resources::new(Store::memory());
    let count = 21_000;
    // The values are a permutation of the numbers.
    for chunk in (0..count).collect::<Vec<_>>().chunks(1_000) {
        let patient = |n: &i32| {
            let name = n * 7_919 % count;
            let resource =
                format!(r#"{{"resourceType":"Patient","id":"p{n}","name":[{{"family":"f{name:05}"}}]}}"#);
            format!(r#"{{"resource":{resource},"request":{{"method":"PUT","url":"Patient/p{n}"}}}}"#)
        };
        let entries: Vec<_> = chunk.iter().map(patient).collect();
        let bundle =
            format!(r#"{{"resourceType":"Bundle","type":"transaction","entry":[{}]}}"#, entries.join(","));
        let plan = resources.plan(bundle.as_bytes(), String::new, now()).unwrap();
        resources.carry_out(plan, now()).await.unwrap();
    }
    let view = resources.restricted_to(Restriction::None);
    for (sort, expected) in [("family", [0, 1, 2]), ("-family", [20_999, 20_998, 20_997])] {
        let keys = SortKey::list("Patient", sort).unwrap();
        let (page, total) = view.search_sorted("Patient", None, &keys, None, 3).await.unwrap();
        assert_eq!(total, 21_000);
        let names: Vec<_> = page
            .resources
            .iter()
            .map(|resource| String::from_utf8_lossy(&resource.bytes).into_owned())
            .collect();
        for (name, expected) in names.iter().zip(expected) {
            assert!(name.contains(&format!("f{expected:05}")), "{sort}: {name}");
        }
        let deep = page.next.unwrap().replace("~sorted~3", "~sorted~20000");
        let error = view.search_sorted("Patient", None, &keys, Some(&deep), 3).await.unwrap_err();
        assert!(error.to_string().contains("reach the first 20000 matches"), "{error}");
    }
}

#[tokio::test]
async fn sorted_searches_order_all_matches_and_put_missing_values_last() {
    let resources = Resources::new(Store::memory());
    let names = [
        ("a", r#","birthDate":"1980-05","name":[{"family":"Öz"}]"#),
        ("b", r#","birthDate":"1980-05-02","name":[{"family":"abel"},{"family":"Zorn"}]"#),
        ("c", r#","name":[{"family":"Brandt"}]"#),
        ("d", r#","birthDate":"1979""#),
    ];
    for (id, more) in names {
        let body = format!(r#"{{"resourceType":"Patient","id":"{id}"{more}}}"#);
        resources.update("Patient", id, body, None, now()).await.unwrap();
    }
    let view = resources.restricted_to(Restriction::None);
    for (sort, expected) in [
        ("birthdate", "dabc"),
        ("-birthdate", "abdc"),
        ("family", "bcad"),
        ("-family", "bacd"),
        ("_id", "abcd"),
        ("-_id", "dcba"),
        ("_lastUpdated,-family", "bacd"),
    ] {
        let keys = SortKey::list("Patient", sort).unwrap();
        for count in [1, 3, 9] {
            let (mut found, mut from) = (String::new(), None::<String>);
            loop {
                let page = view.search_sorted("Patient", None, &keys, from.as_deref(), count).await.unwrap();
                assert_eq!(page.1, names.len());
                found.extend(page.0.resources.iter().map(|resource| resource.id.as_str()));
                from = page.0.next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{sort}");
        }
    }
    assert_eq!(view.count("Patient", None).await.unwrap(), names.len());
    assert!(SortKey::list("Patient", "shoe").unwrap_err().contains("'shoe'"));
    assert!(SortKey::list("Patient", &["_id"; 9].join(",")).unwrap_err().contains("9 keys"));
    let keys = SortKey::list("Patient", "_id").unwrap();
    assert_eq!(
        view.search_sorted("Patient", None, &keys, Some("1~sorted~x"), 1).await,
        Err(ResourceError::Page)
    );
}

#[tokio::test]
async fn the_pages_of_a_restricted_search_do_not_reveal_resources_outside() {
    let resources = Resources::new(Store::memory());
    let identifier = |value: &str| format!(r#"[{{"value":"{value}"}}]"#);
    for (id, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
        let body = format!(r#"{{"resourceType":"Patient","id":"{id}","identifier":{}}}"#, identifier(value));
        resources.update("Patient", id, body, None, now()).await.unwrap();
    }
    let both = TypeFilter::read("Patient?identifier=1,2", "", now()).unwrap();
    // More compartments than are scanned one after the other lead to a search of the index or of the type.
    for others in [0, 100] {
        let others: Vec<String> = (0..others).map(|number| format!("x{number}")).collect();
        let own = others.iter().map(String::as_str).chain(["a", "c"]);
        let view = resources.restricted_to(Restriction::patients(own));
        let page = view.search("Patient", Some(&both), None, 1).await.unwrap();
        assert_eq!((page.resources.len(), page.next), (1, None));
        let all = view.search("Patient", None, None, 1).await.unwrap();
        let rest = view.search("Patient", None, all.next.as_deref(), 1).await.unwrap();
        assert_eq!(
            (all.resources[0].id.as_str(), rest.resources[0].id.as_str(), rest.next),
            ("a", "c", None)
        );
    }
    let ids = ["c", "a", "a", "missing"].map(str::to_owned);
    let view = resources.restricted_to(Restriction::read_only(ids.to_vec()));
    let first = view.search("Patient", None, None, 1).await.unwrap();
    let second = view.search("Patient", None, first.next.as_deref(), 1).await.unwrap();
    assert_eq!(
        (first.resources[0].id.as_str(), second.resources[0].id.as_str(), second.next),
        ("a", "c", None)
    );
}

/// A search of any order ends when the CPU time of its request is spent.
#[tokio::test]
async fn a_search_ends_when_its_cpu_time_is_spent() {
    /// A millisecond passes between two questions for the time of a thread.
    fn ticking() -> Duration {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Duration::from_millis(COUNT.fetch_add(1, Ordering::Relaxed))
    }
    let resources = Resources::at(Store::memory(), "https://s.example");
    for number in 0..40 {
        let patient = format!("p{}", number % 2);
        let body = json!({ "resourceType": "Observation", "id": format!("o{number}"), "status": "final",
            "subject": { "reference": format!("Patient/{patient}") }, "code": { "text": "x" } });
        let id = format!("o{number}");
        resources.update("Observation", &id, body.to_string().as_bytes(), None, now()).await.unwrap();
    }
    let all = resources.restricted_to(Restriction::None);
    let own = resources.restricted_to(Restriction::patients(["p0", "p1"]));
    // Scans of the type and of compartments, and candidates of the index.
    for (view, query) in [
        (&all, "Observation?status:not=draft"),
        (&own, "Observation?status:not=draft"),
        (&all, "Observation?status=final"),
        (&all, "Observation?_id=o1,o2"),
    ] {
        let filter = TypeFilter::read(query, "https://s.example", now()).unwrap();
        let search = async |limit| {
            let work = view.search("Observation", Some(&filter), None, 10);
            CpuBudget::new(Duration::from_millis(limit), ticking).run(work).await
        };
        assert!(search(1_000).await.is_ok(), "{query}");
        let error = search(0).await.unwrap_err();
        assert!(matches!(error, ResourceError::TooCostly(_)), "{query}: {error}");
    }
}
