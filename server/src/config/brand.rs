//! `[pages]`: the name, the logo, the colours, the sentences and the links of the pages for people.

use std::path::PathBuf;

use bytes::Bytes;
use toml::Spanned;

use super::documented::settings_table;
use super::{ConfigError, ConfigSource};

/// Maximum size of a logo, in bytes.
const MAX_LOGO_BYTES: u64 = 256 * 1024;
/// Maximum number of characters of a sentence on a page.
const MAX_SENTENCE: usize = 300;
/// Minimum contrast between a colour and the background (WCAG 2.2, 1.4.3).
const MIN_CONTRAST: f64 = 4.5;
/// Backgrounds of the light and the dark style sheet, on which texts have the colour.
const LIGHT_BACKGROUNDS: [&str; 3] = ["#ffffff", "#f1f5f1", "#e4f1e9"];
const DARK_BACKGROUNDS: [&str; 3] = ["#18211c", "#101713", "#1d3327"];

settings_table! {
    /// The pages for people: sign-in, consent, account and others.
    pub struct PagesSection {
        /// Name of the service, which every page shows.
        name: Spanned<String> = super::documented::implicit("Trefoil".to_owned()),
        /// File with a logo, as SVG, PNG or WebP, of at most 256 KiB.
        logo: Option<Spanned<PathBuf>> = None,
        /// Colour of links and buttons as `#rrggbb`, with a contrast of at least 4.5 to light backgrounds.
        color: Option<Spanned<String>> = None,
        /// The same colour for dark mode, with a contrast of at least 4.5 to dark backgrounds.
        dark_color: Option<Spanned<String>> = None,
        /// Where faults of security are reported, as `mailto:` or `https:`, for `/.well-known/security.txt`.
        security_contact: Option<Spanned<String>> = None,
        /// The home page: `on`, `off` (404), or the `https:` address to which it redirects.
        home: Spanned<String> = super::documented::implicit("on".to_owned()),
        /// `https:` address of the documentation, to which the home page links; `{version}` in it stands for
        /// the version of the server.
        documentation: Option<Spanned<String>> = None,
        /// Address for people who need help, as `https:`, `mailto:` or `tel:`, to which every page links.
        help: Option<Spanned<String>> = None,
        /// Sentence on the home page that says what this server is for.
        description: Option<Spanned<String>> = None,
        /// Sentence on the sign-in page, such as who has an account here.
        sign_in_text: Option<Spanned<String>> = None,
        /// The sentences in German.
        de: PagesTextsSection = PagesTextsSection::default(),
        /// `https:` address of the imprint, to which every page links.
        imprint: Option<Spanned<String>> = None,
        /// `https:` address of the privacy notice, to which every page links.
        privacy: Option<Spanned<String>> = None,
    }
}

settings_table! {
    /// Sentences of the pages in German, for browsers that prefer it. If one is missing, that of `[pages]` is
    /// shown.
    pub struct PagesTextsSection {
        /// Sentence on the home page.
        description: Option<Spanned<String>> = None,
        /// Sentence on the sign-in page.
        sign_in_text: Option<Spanned<String>> = None,
    }
}

/// The checked appearance of the pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brand {
    /// Name of the service.
    pub name: String,
    /// The logo.
    pub logo: Option<Logo>,
    /// CSS that replaces the colours of the style sheet.
    pub colors: String,
    /// Address for reports of security faults.
    pub security_contact: Option<String>,
    /// The home page.
    pub home: HomePage,
    /// Address of the documentation of this version.
    pub documentation: Option<String>,
    /// Address for people who need help.
    pub help: Option<String>,
    /// Sentence on the home page.
    pub description: BrandText,
    /// Sentence on the sign-in page.
    pub sign_in_text: BrandText,
    /// Address of the imprint.
    pub imprint: Option<String>,
    /// Address of the privacy notice.
    pub privacy: Option<String>,
}

/// A sentence in the languages of the pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrandText {
    text: Option<String>,
    german: Option<String>,
}

impl BrandText {
    /// The sentence for a language tag.
    pub fn in_language(&self, tag: &str) -> Option<&str> {
        self.german.as_deref().filter(|_| tag == "de").or(self.text.as_deref())
    }
}

/// Answer to a request for the home page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HomePage {
    /// A description of the server.
    #[default]
    Shown,
    /// 404.
    Off,
    /// A redirect to this address.
    Redirected(String),
}

/// An image and its media type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logo {
    /// Media type.
    pub media_type: &'static str,
    /// Content of the file.
    pub bytes: Bytes,
}

impl Default for Brand {
    fn default() -> Self {
        Self {
            name: "Trefoil".to_owned(),
            logo: None,
            colors: String::new(),
            security_contact: None,
            home: HomePage::default(),
            documentation: None,
            help: None,
            description: BrandText::default(),
            sign_in_text: BrandText::default(),
            imprint: None,
            privacy: None,
        }
    }
}

impl PagesSection {
    /// Checks the section and reads the logo.
    pub fn check(self, file: &ConfigSource<'_>) -> Result<Brand, ConfigError> {
        let (span, name) = (self.name.span(), self.name.into_inner());
        if name.trim().is_empty() || name.chars().count() > 60 || name.chars().any(char::is_control) {
            return Err(file.value_error(span, "name", "a name must have 1 to 60 printable characters"));
        }
        let logo = self.logo.as_ref().map(|path| read_logo(file, path)).transpose()?;
        let mut colors = String::new();
        if let Some(color) = &self.color {
            let value = check_color(file, "color", color, &LIGHT_BACKGROUNDS)?;
            colors.push_str(&format!(":root {{ --leaf: {value}; }}\n"));
        }
        if let Some(color) = &self.dark_color {
            let value = check_color(file, "dark_color", color, &DARK_BACKGROUNDS)?;
            colors.push_str(&format!(
                "@media (prefers-color-scheme: dark) {{ :root {{ --leaf: {value}; }} }}\n"
            ));
        } else if self.color.is_some() {
            // Without this rule, the light colour would also be used in dark mode.
            colors.push_str("@media (prefers-color-scheme: dark) { :root { --leaf: #7fd1a1; } }\n");
        }
        let advice = "write an address such as mailto:security@example.org (RFC 9116 section 2.5.3)";
        let security_contact = check_contact(file, "security_contact", self.security_contact, advice)?;
        let advice =
            "write an address such as https://example.org/help, mailto:help@example.org or tel:+12025550100";
        let help = check_contact(file, "help", self.help, advice)?;
        let description = BrandText {
            text: check_sentence(file, "description", self.description)?,
            german: check_sentence(file, "description", self.de.description)?,
        };
        let sign_in_text = BrandText {
            text: check_sentence(file, "sign_in_text", self.sign_in_text)?,
            german: check_sentence(file, "sign_in_text", self.de.sign_in_text)?,
        };
        let (span, home) = (self.home.span(), self.home.into_inner());
        let home = match home.as_str() {
            "on" => HomePage::Shown,
            "off" => HomePage::Off,
            address if is_https(address) => HomePage::Redirected(home),
            _ => {
                let reason = "write on, off, or the address of your own page, such as https://example.org/";
                return Err(file.value_error(span, "home", reason));
            }
        };
        let https = |key: &'static str, address: Option<Spanned<String>>, example: &str| {
            let Some(address) = address else { return Ok(None) };
            let of_version = address.as_ref().replace("{version}", env!("CARGO_PKG_VERSION"));
            if !is_https(&of_version) {
                return Err(file.value_error(
                    address.span(),
                    key,
                    format!("write an address such as {example}"),
                ));
            }
            Ok(Some(of_version))
        };
        let documentation =
            https("documentation", self.documentation, "https://docs.example.org/{version}/")?;
        let imprint = https("imprint", self.imprint, "https://example.org/imprint")?;
        let privacy = https("privacy", self.privacy, "https://example.org/privacy")?;
        Ok(Brand {
            name,
            logo,
            colors,
            security_contact,
            home,
            documentation,
            help,
            description,
            sign_in_text,
            imprint,
            privacy,
        })
    }
}

/// An address through which people are reached.
fn check_contact(
    file: &ConfigSource<'_>,
    key: &'static str,
    contact: Option<Spanned<String>>,
    reason: &str,
) -> Result<Option<String>, ConfigError> {
    let Some(contact) = contact else { return Ok(None) };
    let is_uri = ["mailto:", "https://", "tel:"].iter().any(|scheme| contact.as_ref().starts_with(scheme));
    if !is_uri || contact.as_ref().chars().any(|c| c.is_control() || c == ' ') {
        return Err(file.value_error(contact.span(), key, reason));
    }
    Ok(Some(contact.into_inner()))
}

fn check_sentence(
    file: &ConfigSource<'_>,
    key: &'static str,
    sentence: Option<Spanned<String>>,
) -> Result<Option<String>, ConfigError> {
    let Some(sentence) = sentence else { return Ok(None) };
    let text = sentence.as_ref().trim();
    if text.is_empty() || text.chars().count() > MAX_SENTENCE || text.chars().any(char::is_control) {
        let reason =
            format!("a sentence must have 1 to {MAX_SENTENCE} printable characters, without line breaks");
        return Err(file.value_error(sentence.span(), key, reason));
    }
    Ok(Some(text.to_owned()))
}

fn is_https(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| url.scheme() == "https")
}

fn read_logo(file: &ConfigSource<'_>, path: &Spanned<PathBuf>) -> Result<Logo, ConfigError> {
    let wrong = |reason: String| file.value_error(path.span(), "logo", reason);
    let resolved = file.resolve_path(path.as_ref());
    let media_type = match resolved.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("webp") => "image/webp",
        _ => {
            return Err(wrong(format!("'{}' is not a file of type .svg, .png or .webp", resolved.display())));
        }
    };
    let failed = |error: std::io::Error| wrong(format!("failed to read {}: {error}", resolved.display()));
    let size = std::fs::metadata(&resolved).map_err(failed)?.len();
    if size > MAX_LOGO_BYTES {
        return Err(wrong(format!("the file has {size} bytes; the maximum is {MAX_LOGO_BYTES}")));
    }
    Ok(Logo { media_type, bytes: std::fs::read(&resolved).map_err(failed)?.into() })
}

fn check_color(
    file: &ConfigSource<'_>,
    key: &'static str,
    color: &Spanned<String>,
    backgrounds: &[&str],
) -> Result<String, ConfigError> {
    let value = color.as_ref().to_ascii_lowercase();
    let wrong = |reason: String| file.value_error(color.span(), key, reason);
    let own = luminance(&value).ok_or_else(|| wrong(format!("'{value}' is not a colour such as #1d6b41")))?;
    let contrast = |background: &&str| {
        let other = luminance(background).unwrap_or_default();
        (own.max(other) + 0.05) / (own.min(other) + 0.05)
    };
    let least = backgrounds.iter().map(contrast).fold(f64::INFINITY, f64::min);
    if least < MIN_CONTRAST {
        return Err(wrong(format!(
            "'{value}' has a contrast of {least:.1} to a background; it must be at least {MIN_CONTRAST}"
        )));
    }
    Ok(value)
}

/// The relative luminance of a colour `#rrggbb` (WCAG 2.2).
fn luminance(color: &str) -> Option<f64> {
    let digits = color.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let part = |index: usize| {
        let value = f64::from(u8::from_str_radix(&digits[index..index + 2], 16).ok()?) / 255.0;
        Some(if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) })
    };
    Some(0.2126 * part(0)? + 0.7152 * part(2)? + 0.0722 * part(4)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luminance_is_that_of_wcag() {
        assert_eq!(luminance("#000000"), Some(0.0));
        assert_eq!(luminance("#ffffff"), Some(1.0));
        assert!((luminance("#767676").unwrap() - 0.1812).abs() < 0.001);
        for text in ["", "#fff", "ffffff", "#gggggg", "#ääa"] {
            assert_eq!(luminance(text), None, "{text}");
        }
    }
}
