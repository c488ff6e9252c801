//! Formats of output files (`_outputFormat`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Declares the formats: the extension of the files, the names in `_outputFormat`, of which the first is the
/// media type, and the content of a file from lines of NDJSON.
macro_rules! formats {
    ($($(#[doc = $meaning:literal])+ $(#[$attribute:ident])? $variant:ident = $extension:literal: [$($name:literal),+] => $content:expr;)+) => {
        /// Format of output files.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Format {
            $($(#[doc = $meaning])+ $(#[$attribute])? $variant,)+
            /// A format of an earlier version. Its exports that were running cannot be continued.
            #[serde(other)]
            Former,
        }

        impl Format {
            /// The format named by a value of `_outputFormat`, if this server supports it.
            pub fn read(value: &str) -> Option<Self> {
                // A literal `+` in a query is decoded as a space.
                match value.replace(' ', "+").as_str() {
                    $($($name)|+ => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The format of a file with this name.
            pub(crate) fn of_file(name: &str) -> Option<Self> {
                match name.rsplit_once('.')?.1 {
                    $($extension => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The value of the header `Content-Type`.
            pub fn media_type(self) -> &'static str {
                match self {
                    $(Self::$variant => [$($name),+][0],)+
                    Self::Former => "application/octet-stream",
                }
            }

            /// The content of a file with these lines of NDJSON.
            pub(crate) fn content(self, lines: Bytes) -> Bytes {
                let content: fn(Bytes) -> Bytes = match self {
                    $(Self::$variant => $content,)+
                    Self::Former => |lines| lines,
                };
                content(lines)
            }

            pub(crate) fn extension(self) -> &'static str {
                match self {
                    $(Self::$variant => $extension,)+
                    Self::Former => "",
                }
            }
        }
    };
}

formats! {
    /// NDJSON, one resource per line, with the three names that the specification requires.
    #[default]
    Ndjson = "ndjson": ["application/fhir+ndjson", "application/ndjson", "ndjson"] => |lines| lines;
}
