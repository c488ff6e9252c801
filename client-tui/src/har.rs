//! Recorded exchanges as an HTTP Archive (HAR 1.2), which browsers and other tools can show. Secrets are
//! masked.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::RecordedExchange;

/// The archive, with the oldest exchange first. Exchanges without a response are left out.
pub fn archive<'a>(exchanges: impl Iterator<Item = &'a RecordedExchange>) -> Value {
    let mut entries: Vec<_> = exchanges.filter_map(entry).collect();
    entries.sort_by_key(|(started, _)| *started);
    let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
    json!({ "log": {
        "version": "1.2",
        "creator": { "name": "trefoil-tui", "version": env!("CARGO_PKG_VERSION") },
        "entries": entries,
    }})
}

fn entry(exchange: &RecordedExchange) -> Option<(Timestamp, Value)> {
    let answered = exchange.outcome.as_ref()?.as_ref().ok()?;
    let query: Vec<_> = url::Url::parse(&exchange.url)
        .map(|url| url.query_pairs().map(|(name, value)| json!({ "name": name, "value": value })).collect())
        .unwrap_or_default();
    let mime = |headers: &[(String, String)]| {
        let content_type = headers.iter().find(|(name, _)| name == "content-type");
        content_type.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    // HAR 1.2 requires all of these members; -1 means that a size is not known.
    let mut request = json!({
        "method": exchange.method,
        "url": exchange.url,
        "httpVersion": "HTTP",
        "cookies": [],
        "headers": pairs(&exchange.request_headers),
        "queryString": query,
        "headersSize": -1,
        "bodySize": exchange.request_body.as_ref().map_or(0, String::len),
    });
    if let Some(body) = &exchange.request_body {
        request["postData"] = json!({ "mimeType": mime(&exchange.request_headers), "text": body });
    }
    let wait_ms = exchange.headers_ms.unwrap_or(exchange.took_ms).min(exchange.took_ms);
    let value = json!({
        "startedDateTime": exchange.at,
        "time": exchange.took_ms,
        "request": request,
        "response": {
            "status": answered.status,
            "statusText": "",
            "httpVersion": "HTTP",
            "cookies": [],
            "headers": pairs(&answered.headers),
            "content": {
                "size": answered.body.len(),
                "mimeType": mime(&answered.headers),
                "text": answered.body,
            },
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1,
        },
        "cache": {},
        // The time to connect is part of the wait.
        "timings": { "send": 0, "wait": wait_ms, "receive": exchange.took_ms - wait_ms },
    });
    Some((exchange.at, value))
}

fn pairs(headers: &[(String, String)]) -> Vec<Value> {
    headers.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}
