//! `[traces]`: traces of requests for a collector of OpenTelemetry.

use toml::Spanned;

use super::documented::{implicit, settings_table};
use super::{ConfigError, ConfigSource};

settings_table! {
    /// Traces of requests, for a collector of OpenTelemetry.
    pub struct TracesSection {
        /// Address of a collector that receives OTLP over HTTP, such as `http://localhost:4318`. Without this
        /// setting, no traces are sent.
        collector: Option<Spanned<String>> = None,
        /// Percentage of the requests that are recorded, 0 to 100, if their caller has not decided that by
        /// `traceparent`.
        sampled_percent: Spanned<u32> = implicit(100),
    }
}

/// The checked settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracesConfig {
    /// Address of the collector.
    pub collector: Option<String>,
    /// Percentage of the requests without a parent that are recorded.
    pub percent: u8,
}

impl TracesSection {
    pub(super) fn check(&self, source: &ConfigSource<'_>) -> Result<TracesConfig, ConfigError> {
        let percent = source.bounded_number("sampled_percent", &self.sampled_percent, 0..=100)?;
        let percent = u8::try_from(percent).unwrap_or(100);
        if let Some(address) = &self.collector {
            let url = url::Url::parse(address.as_ref()).ok();
            let is_fit = |url: &url::Url| {
                matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none()
            };
            if !url.as_ref().is_some_and(is_fit) {
                let reason = "write the address of the collector, such as http://localhost:4318".to_owned();
                return Err(source.value_error(address.span(), "collector", reason));
            }
        }
        Ok(TracesConfig { collector: self.collector.as_ref().map(|it| it.as_ref().clone()), percent })
    }
}
