//! Weights in headers of content negotiation: `Accept: text/plain, */*;q=0.1` (RFC 9110 section 12.4.2).

use http::{HeaderMap, HeaderName};

/// The values of a header in lower case, without parameters, each with its weight. A value without a weight
/// has 1, and a malformed weight is 0.
pub fn quality_values(headers: &HeaderMap, name: &HeaderName) -> Vec<(String, f32)> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    let values = lines.flat_map(|line| line.split(',')).filter_map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let value = parts.next().filter(|value| !value.is_empty())?.to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |text| text.trim().parse::<f32>().unwrap_or(0.0));
        Some((value, if weight.is_finite() { weight } else { 0.0 }))
    });
    values.collect()
}
