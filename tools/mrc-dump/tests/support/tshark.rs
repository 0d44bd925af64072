//! Runs `tshark` with the dissector.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/wireshark/mrc.lua");

/// A `tshark` that is there, in a home directory where the dissector is installed as the README says.
pub(crate) struct Tshark {
    fields: Vec<String>,
    home: tempfile::TempDir,
}

/// What it shows of a packet.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) info: String,
    pub(crate) protocol: String,
    /// By name; `mrc.*` without the expert infos.
    pub(crate) fields: BTreeMap<String, Vec<String>>,
    /// Names of the expert infos, without `mrc.expert.`.
    pub(crate) experts: Vec<String>,
}

impl Shown {
    #[track_caller]
    pub(crate) fn one(&self, field: &str) -> &str {
        let values = self.fields.get(field);
        let values = values.unwrap_or_else(|| panic!("no {field} in {self:?}"));
        assert_eq!(values.len(), 1, "{field} in {self:?}");
        &values[0]
    }

    pub(crate) fn is(&self, field: &str) -> bool {
        self.fields
            .get(field)
            .is_some_and(|values| ["1", "True"].contains(&values[0].as_str()))
    }

    pub(crate) fn is_mrc(&self) -> bool {
        self.protocol == "MRC"
    }
}

/// Not a character of any value.
const SEPARATOR: char = '\u{1f}';

impl Tshark {
    /// `None`, loudly, where it is not installed.
    pub(crate) fn find() -> Option<Self> {
        let home = tempfile::tempdir().unwrap();
        let plugins = home.path().join(".local/lib/wireshark/plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::fs::copy(DISSECTOR, plugins.join("mrc.lua")).unwrap();
        let mut tshark = Self {
            fields: Vec::new(),
            home,
        };
        let listed = match tshark.command().args(["-G", "fields"]).output() {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("NOT TESTED: the Wireshark dissector, because there is no tshark: run `cargo xtask setup`");
                return None;
            }
            Err(error) => panic!("tshark: {error}"),
        };
        assert!(listed.status.success(), "{}", complaints(&listed));
        // Kind, title, name, and more.
        let text = String::from_utf8_lossy(&listed.stdout);
        let fields = text.lines().filter_map(|line| line.split('\t').nth(2));
        let fields = fields.filter(|name| name.starts_with("mrc.")).map(str::to_owned);
        tshark.fields = fields.collect();
        tshark.fields.sort();
        tshark.fields.dedup();
        assert!(
            tshark.fields.len() > 100,
            "the dissector was not loaded: {}",
            complaints(&listed)
        );
        Some(tshark)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tshark");
        command.env("HOME", self.home.path()).env_remove("XDG_CONFIG_HOME");
        command
    }

    /// Names of all fields and expert infos.
    pub(crate) fn fields(&self) -> Vec<String> {
        self.fields.clone()
    }

    /// Its standard output.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let output = self.command().arg("-n").args(args).output().unwrap();
        assert!(output.status.success(), "{}", complaints(&output));
        assert!(!complaints(&output).contains("Lua"), "{}", complaints(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Every packet of a capture with all its fields.
    pub(crate) fn read(&self, capture: &Path, more: &[&str]) -> Vec<Shown> {
        self.read_only("mrc.", capture, more)
    }

    /// Every packet of a capture, with those fields whose name starts so.
    pub(crate) fn read_only(&self, prefix: &str, capture: &Path, more: &[&str]) -> Vec<Shown> {
        let fields: Vec<&str> = self
            .fields
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with(prefix))
            .collect();
        let mut args = vec![
            "-r",
            capture.to_str().unwrap(),
            "-T",
            "fields",
            "-E",
            "separator=\u{1f}",
        ];
        args.extend(["-E", "occurrence=a", "-E", "aggregator=;"]);
        args.extend(["-e", "_ws.col.Info", "-e", "_ws.col.Protocol"]);
        for field in &fields {
            args.extend(["-e", field]);
        }
        args.extend(more);
        self.run(&args).lines().map(|line| shown(&fields, line)).collect()
    }
}

fn shown(names: &[&str], line: &str) -> Shown {
    let mut columns = line.split(SEPARATOR);
    let mut column = || columns.next().unwrap_or_default().to_owned();
    let (info, protocol) = (column(), column());
    let (mut fields, mut experts) = (BTreeMap::new(), Vec::new());
    for name in names {
        let value = column();
        if value.is_empty() {
            continue;
        }
        match name.strip_prefix("mrc.expert.") {
            Some(expert) => experts.push(expert.to_owned()),
            None => {
                fields.insert((*name).to_owned(), value.split(';').map(str::to_owned).collect());
            }
        }
    }
    Shown {
        info,
        protocol,
        fields,
        experts,
    }
}

fn complaints(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
