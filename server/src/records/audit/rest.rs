//! Reads and changes of FHIR resources as AuditEvents in the shape of IHE BALP, the Basic Audit Log Patterns
//! (<https://profiles.ihe.net/ITI/BALP/>): Create, Read, Update, Delete and Query, each with or without a
//! Patient.
//!
//! One interaction is one event. If it concerns several Patients, the event has an entity for each of them;
//! BALP's `Patient…` profiles have exactly one, so such an event conforms to the profile without Patient
//! only.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::caller::AuditCaller;
use super::coding::{DCM, TYPES, coding};

const PARTICIPATION: &str = "http://terminology.hl7.org/CodeSystem/v3-ParticipationType";
const ENTITY_TYPE: &str = "http://terminology.hl7.org/CodeSystem/audit-entity-type";
const ROLE: &str = "http://terminology.hl7.org/CodeSystem/object-role";

/// An interaction of the RESTful API of FHIR R4 that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestInteraction {
    /// `create`
    Create,
    /// `read`
    Read,
    /// `vread`
    ReadVersion,
    /// `update`
    Update,
    /// `delete`
    Delete,
    /// `history-instance`
    History,
    /// `search-type`
    Search,
}

impl RestInteraction {
    /// Code of <http://hl7.org/fhir/restful-interaction>, and code of the action.
    fn codes(self) -> (&'static str, &'static str) {
        match self {
            Self::Create => ("create", "C"),
            Self::Read => ("read", "R"),
            Self::ReadVersion => ("vread", "R"),
            Self::Update => ("update", "U"),
            Self::Delete => ("delete", "D"),
            Self::History => ("history-instance", "R"),
            Self::Search => ("search-type", "E"),
        }
    }

    /// Types of the agents client and server, according to the direction of the data. A search counts as a
    /// flow of its parameters.
    fn roles(self) -> [[&'static str; 3]; 2] {
        const SOURCE: [&str; 3] = [DCM, "110153", "Source Role ID"];
        const DESTINATION: [&str; 3] = [DCM, "110152", "Destination Role ID"];
        const APPLICATION: [&str; 3] = [DCM, "110150", "Application"];
        const CUSTODIAN: [&str; 3] =
            ["http://terminology.hl7.org/CodeSystem/provenance-participant-type", "custodian", "Custodian"];
        match self {
            Self::Create | Self::Update | Self::Search => [SOURCE, DESTINATION],
            Self::Read | Self::ReadVersion | Self::History => [DESTINATION, SOURCE],
            Self::Delete => [APPLICATION, CUSTODIAN],
        }
    }

    fn user_role(self) -> [&'static str; 3] {
        match self {
            Self::Create | Self::Update | Self::Delete => [PARTICIPATION, "AUT", "author (originator)"],
            _ => [PARTICIPATION, "IRCP", "information recipient"],
        }
    }
}

/// A read or change of FHIR resources.
#[derive(Debug, Clone)]
pub struct RestEvent {
    /// The interaction.
    pub interaction: RestInteraction,
    /// The client of the access token.
    pub client_id: String,
    /// The user of the access token.
    pub sub: Option<String>,
    /// The resource: `Type/id/_history/version`, or `Type/id` for a history. `None` for a search.
    pub resource: Option<String>,
    /// The compartments that the resources belong to; those of Patients (`Patient/id`) are recorded.
    pub compartments: Vec<String>,
    /// Method and URL of a search.
    pub query: Option<String>,
}

/// The members of the AuditEvent that depend on the event.
pub(super) fn render(event: &RestEvent, caller: &AuditCaller, observer: &str) -> Value {
    let (subtype, action) = event.interaction.codes();
    json!({
        "type": coding([TYPES, "rest", "RESTful Operation"]),
        "subtype": [coding(["http://hl7.org/fhir/restful-interaction", subtype, subtype])],
        "action": action,
        "outcome": "0",
        "agent": agents(event, caller, observer),
        "entity": entities(event, caller),
    })
}

fn agents(event: &RestEvent, caller: &AuditCaller, observer: &str) -> Vec<Value> {
    let codes = |code| json!({ "coding": [coding(code)] });
    let who = |value: &str| json!({ "identifier": { "system": observer, "value": value } });
    let [client, server] = event.interaction.roles();
    let mut client = json!({
        "type": codes(client),
        "who": who(&event.client_id),
        "requestor": event.sub.is_none(),
    });
    if let Some(address) = caller.address {
        client["network"] = json!({ "address": address.to_string(), "type": "2" });
    }
    let server = json!({
        "type": codes(server),
        "who": { "display": observer },
        "requestor": false,
        "network": { "address": observer, "type": "5" },
    });
    let user = event.sub.as_ref().map(
        |sub| json!({ "type": codes(event.interaction.user_role()), "who": who(sub), "requestor": true }),
    );
    [client, server].into_iter().chain(user).collect()
}

fn entities(event: &RestEvent, caller: &AuditCaller) -> Vec<Value> {
    let entity = |kind: [&str; 3], role: [&str; 3]| json!({ "type": coding(kind), "role": coding(role) });
    const SYSTEM_OBJECT: [&str; 3] = [ENTITY_TYPE, "2", "System Object"];
    let mut entities = Vec::new();
    if let Some(resource) = &event.resource {
        let mut data = entity(SYSTEM_OBJECT, [ROLE, "4", "Domain Resource"]);
        data["what"] = json!({ "reference": resource });
        entities.push(data);
    }
    if let Some(query) = &event.query {
        let mut search = entity(SYSTEM_OBJECT, [ROLE, "24", "Query"]);
        search["query"] = STANDARD.encode(query).into();
        entities.push(search);
    }
    for patient in event.compartments.iter().filter(|compartment| compartment.starts_with("Patient/")) {
        let mut person = entity([ENTITY_TYPE, "1", "Person"], [ROLE, "1", "Patient"]);
        person["what"] = json!({ "reference": patient });
        entities.push(person);
    }
    if let Some(id) = caller.request_id.as_deref() {
        let kind = [
            "https://profiles.ihe.net/ITI/BALP/CodeSystem/BasicAuditEntityType",
            "XrequestId",
            "transaction id from the X-Request-Id header",
        ];
        entities.push(json!({ "type": coding(kind), "what": { "identifier": { "value": id } } }));
    }
    entities
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::AuditEntry;
    use super::super::render::{check_shape, render, test_source};
    use super::*;

    fn rendered(event: RestEvent) -> Value {
        let address = Some("203.0.113.9".parse().unwrap());
        let caller = AuditCaller { address, request_id: Some("r1".into()), ..AuditCaller::default() };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        render(&AuditEntry::Rest(event), Some(&caller), now, "a1", &test_source())
    }

    fn event(interaction: RestInteraction, sub: Option<&str>) -> RestEvent {
        RestEvent {
            interaction,
            client_id: "app".to_owned(),
            sub: sub.map(str::to_owned),
            resource: Some("Observation/o/_history/3".to_owned()),
            compartments: vec!["Patient/p".to_owned(), "Observation/other".to_owned()],
            query: None,
        }
    }

    fn search() -> RestEvent {
        let query = Some("GET https://as.example/fhir/R4/Observation?code=a%7Cb".to_owned());
        RestEvent { resource: None, query, ..event(RestInteraction::Search, None) }
    }

    #[test]
    fn every_interaction_has_the_slices_of_its_profile() {
        let all = [
            RestInteraction::Create,
            RestInteraction::Read,
            RestInteraction::ReadVersion,
            RestInteraction::Update,
            RestInteraction::Delete,
            RestInteraction::History,
        ];
        for interaction in all {
            for sub in [None, Some("u1")] {
                let event = rendered(event(interaction, sub));
                check_shape(&event);
                let agents = event["agent"].as_array().unwrap();
                assert_eq!(agents.len(), 2 + usize::from(sub.is_some()));
                assert!(agents[..2].iter().all(|agent| agent["network"]["address"].is_string()), "{event}");
                assert_eq!(agents.get(2).map_or(&agents[0], |user| user)["requestor"], true);
                assert_eq!(event["entity"][0]["what"]["reference"], "Observation/o/_history/3");
                assert_eq!(event["entity"][1]["what"]["reference"], "Patient/p");
                assert_eq!(event["entity"].as_array().unwrap().len(), 3);
            }
        }
    }

    #[test]
    fn an_update_and_a_search_in_full() {
        insta::assert_json_snapshot!("patient_update", rendered(event(RestInteraction::Update, Some("u1"))));
        let search = rendered(search());
        check_shape(&search);
        insta::assert_json_snapshot!("patient_query", search);
    }
}
