//! `cargo xtask pictures`: runs the terminal client in tmux against a demo server, and writes pictures of its
//! screens (PNG, by Chromium) and a recording (asciicast, version 2) to `target/pictures`, and those that the
//! documents show to `server/docs/pictures`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use test_server::ServerProcess;

use xtask::workspace::{build, check, root, target_dir};

/// Columns and rows of the terminal; the first size is that of the recording.
const SIZES: [(usize, usize); 4] = [(120, 40), (80, 24), (200, 60), (40, 12)];
/// Names of the themes, the value of `COLORFGBG` that selects each, and the colours of background and text.
const THEMES: [(&str, &str, [&str; 2]); 3] = [
    ("dark", "15;0", ["#14161b", "#e0e2ea"]),
    ("light", "0;15", ["#ffffff", "#1d2026"]),
    ("solarized", "15;0", ["#002b36", "#93a1a1"]),
];
/// Screens that pages of the documents show, in the usual size and by day and night.
const OF_PAGES: [&str; 3] = ["home", "tree", "export"];
/// Size of a character cell in the pictures, in pixels.
const CELL: (usize, usize) = (9, 19);
/// Maximum time until an expected text is on the screen.
const PATIENCE: Duration = Duration::from_secs(20);

/// A step: the keys to press, the text to wait for, and the name of the picture.
struct Step {
    keys: &'static [&'static str],
    expected: &'static str,
    picture: Option<&'static str>,
}

const fn step(keys: &'static [&'static str], expected: &'static str, picture: Option<&'static str>) -> Step {
    Step { keys, expected, picture }
}

const STEPS: &[Step] = &[
    step(&[], "Walking circle", Some("start")),
    step(&["/", "cane"], "Mobility aid", Some("home")),
    step(&["Escape", "Escape", "1"], "No user is signed in", None),
    step(&["v"], "enter this code", Some("device")),
    step(&["Escape"], "No user is signed in", None),
    step(&["i"], "signature", Some("token")),
    step(&["Escape", "2", "Enter"], "Yes:", Some("validate-code")),
    step(&["o", "Enter"], "outcome", Some("subsumes")),
    step(&["o", "Enter"], "Handstock", None),
    step(&["g"], "folding-cane", Some("tree")),
    step(&["4", "Enter"], "Saved", Some("export")),
    step(&["v"], "line 1 of", None),
    step(&["Enter"], "resourceType", Some("files")),
    step(&["c"], "in ", None),
    step(&["5"], "Request and response", Some("requests")),
    step(&[":"], "Commands", Some("palette")),
    step(&["Escape", "?"], "Everywhere", Some("help")),
];

/// Runs the client through its screens.
pub fn run() -> Result<()> {
    check(&mut build(&["trefoil", "trefoil-tui"]))?;
    let folder = target_dir().join("pictures");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let server = start_server(&folder.join("data"))?;
    let tmux = Tmux { socket: format!("trefoil-pictures-{}", std::process::id()) };
    for theme in THEMES {
        photograph(&folder, &tmux, theme)?;
    }
    drop(server);
    let pages = root().join("server/docs/pictures");
    for (name, theme) in OF_PAGES.into_iter().flat_map(|name| ["dark", "light"].map(|theme| (name, theme))) {
        let picture = folder.join(format!("{name}-{theme}-80x24.png"));
        std::fs::copy(picture, pages.join(format!("terminal-{name}-{theme}.png")))?;
    }
    println!("wrote {}, and those of the pages to {}", folder.display(), pages.display());
    Ok(())
}

/// Runs the client in one theme, and makes the pictures of its screens in all sizes.
fn photograph(
    folder: &Path,
    tmux: &Tmux,
    (theme, background, colours): (&str, &str, [&str; 2]),
) -> Result<()> {
    let client = target_dir().join("debug/trefoil-tui");
    let command = format!(
        "cd '{0}' && env -u NO_COLOR LC_ALL=C.UTF-8 TERM=tmux-256color COLORFGBG='{background}' \
         XDG_STATE_HOME='{0}/state-{theme}' '{1}' --demo data --no-browser",
        folder.display(),
        client.display()
    );
    let (columns, rows) = SIZES[0];
    let (width, height) = (columns.to_string(), rows.to_string());
    let session = ["new-session", "-d", "-x", &width, "-y", &height, &command];
    // The server of tmux stays for the next session: one that is just ending would refuse it.
    tmux.run(&[&session[..], &[";", "set-option", "-s", "exit-empty", "off"]].concat())?;
    let started = Instant::now();
    let mut cast = vec![json!({ "version": 2, "width": columns, "height": rows }).to_string()];
    for step in STEPS {
        for key in step.keys {
            tmux.run(&["send-keys", key])?;
            // Without a pause, tmux reads Escape and the next key as one.
            std::thread::sleep(Duration::from_millis(200));
        }
        let screen = tmux.wait_for(step.expected)?;
        let frame = format!("\x1b[2J\x1b[H{}", screen.replace('\n', "\r\n"));
        cast.push(json!([started.elapsed().as_secs_f64(), "o", frame]).to_string());
        let Some(name) = step.picture else { continue };
        for (columns, rows) in SIZES.into_iter().rev() {
            let screen = tmux.capture_at(columns, rows)?;
            picture(folder, &format!("{name}-{theme}-{columns}x{rows}"), &screen, (columns, rows), colours)?;
        }
    }
    std::fs::write(folder.join(format!("client-{theme}.cast")), cast.join("\n"))?;
    tmux.run(&["kill-session"])?;
    Ok(())
}

fn start_server(data: &Path) -> Result<ServerProcess> {
    let mut command = Command::new(target_dir().join("debug/trefoil"));
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(data).current_dir(root());
    Ok(ServerProcess::start(command.stderr(Stdio::null()))?)
}

/// A tmux server of its own.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn run(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket, "-f", "/dev/null"]).args(args);
        let output = command.output().context("tmux cannot be started; install it")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes the size. Returns the screen after the client has drawn itself again.
    fn capture_at(&self, columns: usize, rows: usize) -> Result<String> {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()])?;
        std::thread::sleep(Duration::from_millis(400));
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen contains a text. Returns the screen with its colours as escape sequences.
    fn wait_for(&self, text: &str) -> Result<String> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if self.run(&["capture-pane", "-p"])?.contains(text) {
                return self.run(&["capture-pane", "-p", "-e"]);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("'{text}' is not on the screen:\n{}", self.run(&["capture-pane", "-p"])?)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.run(&["kill-server"]);
    }
}

/// Writes a screen as HTML and as PNG.
fn picture(
    folder: &Path,
    name: &str,
    screen: &str,
    (columns, rows): (usize, usize),
    colours: [&str; 2],
) -> Result<()> {
    let page = folder.join(format!("{name}.html"));
    std::fs::write(&page, html(screen, colours))?;
    let png: PathBuf = folder.join(format!("{name}.png"));
    let size = format!("--window-size={},{}", columns * CELL.0 + 30, rows * CELL.1 + 24);
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", &size]);
    chromium.arg(format!("--screenshot={}", png.display())).arg(format!("file://{}", page.display()));
    chromium.stdout(Stdio::null()).stderr(Stdio::null());
    check(&mut chromium)
}

/// Converts the escape sequences for colours (ECMA-48, SGR) to HTML.
fn html(screen: &str, [background, text]: [&str; 2]) -> String {
    let mut body = String::new();
    let mut style = CharacterStyle::default();
    for (index, part) in screen.split("\x1b[").enumerate() {
        let piece = match (index, part.split_once('m')) {
            (0, _) | (_, None) => part,
            (_, Some((codes, piece))) => {
                style.apply(codes);
                piece
            }
        };
        let escaped = piece.replace('&', "&amp;").replace('<', "&lt;");
        body.push_str(&format!("<span style=\"{}\">{escaped}</span>", style.css([background, text])));
    }
    format!(
        "<!doctype html><meta charset=\"utf-8\"><style>body{{margin:12px;background:{background};color:{text}}}\
         pre{{margin:0;font:15px/{}px 'DejaVu Sans Mono',monospace}}</style><pre>{body}</pre>",
        CELL.1
    )
}

#[derive(Default)]
struct CharacterStyle {
    foreground: Option<usize>,
    background: Option<usize>,
    bold: bool,
    dim: bool,
    underlined: bool,
    reversed: bool,
}

impl CharacterStyle {
    fn apply(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse::<usize>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                // An index of the palette follows as 5;N.
                38 => self.foreground = codes.nth(1),
                48 => self.background = codes.nth(1),
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                4 => self.underlined = true,
                7 => self.reversed = true,
                30..=37 => self.foreground = Some(code - 30),
                39 => self.foreground = None,
                40..=47 => self.background = Some(code - 40),
                49 => self.background = None,
                90..=97 => self.foreground = Some(code - 82),
                _ => {}
            }
        }
    }

    fn css(&self, [background, text]: [&str; 2]) -> String {
        let colour = |index: Option<usize>, other: &str| index.map_or(other.to_owned(), colour);
        let mut pair = (colour(self.foreground, text), colour(self.background, background));
        if self.reversed {
            pair = (pair.1, pair.0);
        }
        let mut css = format!("color:{};background:{}", pair.0, pair.1);
        for (set, rule) in [
            (self.bold, ";font-weight:bold"),
            (self.dim, ";opacity:.6"),
            (self.underlined, ";text-decoration:underline"),
        ] {
            if set {
                css.push_str(rule);
            }
        }
        css
    }
}

/// A colour of the terminal: one of the 16 that its user chooses, or one of the fixed colours of xterm.
fn colour(index: usize) -> String {
    const CHOSEN: [&str; 16] = [
        "#14161b", "#ff6b6b", "#8fd18f", "#f0c674", "#7aa6da", "#c397d8", "#6fd0d6", "#e0e2ea", "#4f5258",
        "#ff8f8f", "#b3f6c0", "#fce094", "#a6dbff", "#ffcaff", "#8cf8f7", "#ffffff",
    ];
    let step = |value: usize| if value == 0 { 0 } else { 55 + 40 * value };
    match index {
        0..16 => CHOSEN[index].to_owned(),
        16..232 => {
            let cube = index - 16;
            format!("#{:02x}{:02x}{:02x}", step(cube / 36), step(cube / 6 % 6), step(cube % 6))
        }
        _ => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (index.min(255) - 232)),
    }
}
