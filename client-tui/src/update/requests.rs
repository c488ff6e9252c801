//! Updates of the Requests screen.

use crate::api::{HttpProgram, RawRequest, RecordedExchange};
use crate::har;
use crate::model::{Confirmation, EXCHANGES_KEPT, Model};
use crate::msg::{Answered, RuntimeEffect};

/// Adds an exchange, or completes the one with the same id.
pub(super) fn on_exchange(model: &mut Model, exchange: RecordedExchange) {
    let requests = &mut model.requests;
    if let Some(candidate) = requests.exchanges.iter_mut().find(|candidate| candidate.id == exchange.id) {
        *candidate = exchange;
        return;
    }
    // The selected exchange remains selected when a newer one is inserted before it.
    if requests.detail || requests.selected > 0 {
        requests.selected = (requests.selected + 1).min(EXCHANGES_KEPT - 1);
    }
    requests.exchanges.push_front(exchange);
    requests.exchanges.truncate(EXCHANGES_KEPT);
}

fn selected(model: &Model) -> Option<&RecordedExchange> {
    model.requests.exchanges.get(model.requests.selected)
}

pub(super) fn copy_command(model: &mut Model, program: HttpProgram) -> Vec<RuntimeEffect> {
    let Some(exchange) = selected(model) else { return Vec::new() };
    let command = exchange.command(program, model.about.ca.as_deref());
    model.notice = Some("Copied. The token is replaced by $TOKEN, and other secrets are masked.".to_owned());
    vec![RuntimeEffect::Copy(command)]
}

/// Sends the selected request again, with the current token. A request that may change something is sent only
/// if the user confirms it.
pub(super) fn replay(model: &mut Model, confirmed: Option<&Confirmation>) -> Vec<RuntimeEffect> {
    let Some(exchange) = selected(model) else { return Vec::new() };
    let parsed = exchange.request_text().and_then(|text| RawRequest::parse(&text));
    let only_reads = matches!(exchange.method.as_str(), "GET" | "HEAD" | "OPTIONS");
    let question = format!("Repeat the {}?", exchange.method);
    let confirmation = Confirmation::Replay(exchange.id);
    if !only_reads && !model.confirms(confirmed, confirmation, &question) {
        return Vec::new();
    }
    send(model, parsed)
}

/// Opens the selected request in the editor of the user.
pub(super) fn edit(model: &mut Model) -> Vec<RuntimeEffect> {
    let Some(exchange) = selected(model) else { return Vec::new() };
    match exchange.request_text() {
        Ok(text) => vec![RuntimeEffect::EditRequest(text)],
        Err(reason) => {
            model.notice = Some(format!("Error: {reason}"));
            Vec::new()
        }
    }
}

/// Sends a request that the user has edited, but only if it was written: leaving the editor without writing
/// means that nothing is sent.
pub(super) fn on_edited(model: &mut Model, result: Answered<Option<String>>) -> Vec<RuntimeEffect> {
    match result {
        Ok(None) => {
            model.notice = Some("Nothing was sent, because the file was not written.".to_owned());
            Vec::new()
        }
        Ok(Some(text)) => send(model, RawRequest::parse(&text)),
        Err(reason) => send(model, Err(reason)),
    }
}

fn send(model: &mut Model, request: Answered<RawRequest>) -> Vec<RuntimeEffect> {
    match request {
        Ok(request) => {
            // The response is shown as the newest exchange.
            model.requests.selected = 0;
            model.requests.detail = false;
            model.requests.sending = Some(model.now);
            vec![RuntimeEffect::SendRaw(request, model.bearer.clone())]
        }
        Err(reason) => {
            model.notice = Some(format!("Error: {reason}"));
            Vec::new()
        }
    }
}

pub(super) fn on_sent(model: &mut Model, result: Answered<u16>) {
    model.requests.sending = None;
    model.notice = Some(match result {
        Ok(status) => format!("The server answered with the status {status}."),
        Err(reason) => format!("Error: {reason}"),
    });
}

/// Saves all exchanges as an HTTP Archive in the current folder.
pub(super) fn save(model: &mut Model) -> Vec<RuntimeEffect> {
    let name = format!("trefoil-requests-{}.har", model.now.strftime("%Y%m%dT%H%M%SZ"));
    let content = har::archive(model.requests.exchanges.iter()).to_string();
    vec![RuntimeEffect::Save { path: name.into(), content }]
}
