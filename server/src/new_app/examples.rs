//! The examples that `trefoil new-app` writes: one for each kind of app and language.

use clap::ValueEnum;

/// Kinds of apps. They differ in where the app runs, and therefore in how it proves what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppKind {
    /// App in the browser only: no secret, code with PKCE
    Browser,
    /// Web app with a server, which keeps a secret
    Web,
    /// Back end without users, which signs with a private key (SMART Backend Services)
    Backend,
    /// Program in a terminal or on a desktop, which opens the browser
    Terminal,
}

/// Languages of the examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppLanguage {
    /// JavaScript with Node, openid-client or oauth4webapi
    Javascript,
    /// Python with Authlib
    Python,
    /// Java with the libraries of the JDK
    Java,
    /// R with httr and openssl
    R,
    /// Bash with curl and openssl
    Bash,
}

/// A file of an example: its name and its content.
pub type ExampleFile = (&'static str, &'static str);

/// A program that works with the registration in `app.json`.
pub struct AppExample {
    /// Kind of the app.
    pub kind: AppKind,
    /// Language of the program.
    pub language: AppLanguage,
    /// Files of the program.
    pub files: &'static [ExampleFile],
    /// Command that installs the libraries.
    pub install: &'static str,
    /// Command that runs the program.
    pub run: &'static str,
}

/// Reads a file of an example at compile time.
macro_rules! example_file {
    ($kind:literal, $name:literal) => {
        ($name, include_str!(concat!("../../examples/new-app/", $kind, "/", $name)))
    };
}

const OPENID_CLIENT: &str = "npm install openid-client";
/// Distributions refuse `pip install` outside of a virtual environment (PEP 668).
const AUTHLIB: &str = "python3 -m venv .venv && .venv/bin/python -m pip install authlib requests";
const PYTHON: &str = ".venv/bin/python app.py";

/// All examples.
pub const EXAMPLES: &[AppExample] = &[
    AppExample {
        kind: AppKind::Browser,
        language: AppLanguage::Javascript,
        files: &[
            example_file!("browser", "index.html"),
            example_file!("browser", "app.js"),
            example_file!("browser", "serve.mjs"),
        ],
        install: "npm install oauth4webapi",
        run: "node serve.mjs",
    },
    AppExample {
        kind: AppKind::Web,
        language: AppLanguage::Javascript,
        files: &[example_file!("web", "app.mjs")],
        install: OPENID_CLIENT,
        run: "node app.mjs",
    },
    AppExample {
        kind: AppKind::Web,
        language: AppLanguage::Python,
        files: &[example_file!("web", "app.py")],
        install: AUTHLIB,
        run: PYTHON,
    },
    AppExample {
        kind: AppKind::Backend,
        language: AppLanguage::Javascript,
        files: &[example_file!("backend", "app.mjs")],
        install: OPENID_CLIENT,
        run: "node app.mjs",
    },
    AppExample {
        kind: AppKind::Backend,
        language: AppLanguage::Python,
        files: &[example_file!("backend", "app.py")],
        install: AUTHLIB,
        run: PYTHON,
    },
    AppExample {
        kind: AppKind::Backend,
        language: AppLanguage::Java,
        files: &[example_file!("backend", "App.java")],
        install: "java -version",
        run: "java App.java",
    },
    AppExample {
        kind: AppKind::Backend,
        language: AppLanguage::R,
        files: &[example_file!("backend", "app.R")],
        install: "Rscript -e 'install.packages(setdiff(c(\"httr\", \"jsonlite\", \"openssl\"), rownames(installed.packages())))'",
        run: "Rscript app.R",
    },
    AppExample {
        kind: AppKind::Backend,
        language: AppLanguage::Bash,
        files: &[example_file!("backend", "app.sh")],
        install: "curl --version && openssl version",
        run: "bash app.sh",
    },
    AppExample {
        kind: AppKind::Terminal,
        language: AppLanguage::Javascript,
        files: &[example_file!("terminal", "app.mjs")],
        install: OPENID_CLIENT,
        run: "node app.mjs",
    },
    AppExample {
        kind: AppKind::Terminal,
        language: AppLanguage::Python,
        files: &[example_file!("terminal", "app.py")],
        install: AUTHLIB,
        run: PYTHON,
    },
];

impl AppKind {
    /// The scopes of an app if none are requested.
    pub fn default_scope(self) -> &'static str {
        match self {
            Self::Backend => "system/*.rs",
            Self::Browser | Self::Web | Self::Terminal => "openid profile email",
        }
    }
}

impl AppLanguage {
    /// The variables of the environment with which programs in the language trust a certificate authority.
    pub fn ca_variables(self) -> &'static [&'static str] {
        match self {
            Self::Javascript => &["NODE_EXTRA_CA_CERTS"],
            Self::Python => &["REQUESTS_CA_BUNDLE"],
            // The examples read the authority themselves.
            Self::Java | Self::R | Self::Bash => &[],
        }
    }

    /// Whether the libraries of the example read private keys from PEM files instead of JWKs.
    pub fn reads_pem(self) -> bool {
        matches!(self, Self::Java | Self::R | Self::Bash)
    }
}

/// The name of a value on the command line.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The example for a kind and a language.
pub fn find(kind: AppKind, language: AppLanguage) -> Option<&'static AppExample> {
    EXAMPLES.iter().find(|example| example.kind == kind && example.language == language)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated_docs::check_page;

    /// The programs of a kind, one fenced block for each language. Consecutive blocks are tabs in the site.
    fn programs(kind: AppKind) -> String {
        let examples = EXAMPLES.iter().filter(|example| example.kind == kind);
        let blocks = examples.map(|example| {
            let is_program = |(name, _): &&ExampleFile| name.to_ascii_lowercase().starts_with("app.");
            let (_, program) = example.files.iter().find(is_program).expect("each example has a program");
            let language = example.language.to_possible_value().expect("each language has a name");
            format!("```{}\n{program}```\n", language.get_name())
        });
        blocks.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_page_of_languages_has_the_examples() {
        let sections = AppKind::value_variants().iter().map(|kind| {
            let name = kind.to_possible_value().expect("each kind has a name").get_name().to_owned();
            (name, programs(*kind))
        });
        let sections: Vec<_> = sections.collect();
        let sections: Vec<_> = sections.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        check_page("languages.md", &sections);
    }
}
