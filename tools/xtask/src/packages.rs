//! System packages: which are wanted, which are missing, and how they come.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::privilege::{Privilege, in_path};

/// What the packages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Building everything; the demo needs no more.
    Build,
    /// Building and testing everything.
    Test,
}

/// One Debian package.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name in Debian and Ubuntu.
    pub name: &'static str,
    /// What it is good for here.
    pub why: &'static str,
    /// What it brings. A system that has this from elsewhere does not need the package.
    brings: Brings,
}

#[derive(Debug, PartialEq, Eq)]
enum Brings {
    Command(&'static str),
    File(&'static str),
}

const BUILD: &[Package] = &[
    Package {
        name: "clang",
        why: "compiles the BPF programs",
        brings: Brings::Command("clang"),
    },
    Package {
        name: "make",
        why: "builds libbpf, which comes as source with its crate",
        brings: Brings::Command("make"),
    },
    Package {
        name: "pkg-config",
        why: "finds libelf for libbpf",
        brings: Brings::Command("pkg-config"),
    },
    Package {
        name: "libelf-dev",
        why: "libbpf reads BPF objects with it",
        brings: Brings::File("/usr/include/libelf.h"),
    },
    Package {
        name: "m4",
        why: "generates a source file of libxdp",
        brings: Brings::Command("m4"),
    },
];

const TEST: &[Package] = &[
    Package {
        name: "iproute2",
        why: "looks at the lab from outside",
        brings: Brings::Command("ip"),
    },
    Package {
        name: "iputils-ping",
        why: "shows that the kernel forwards in the lab",
        brings: Brings::Command("ping"),
    },
    Package {
        name: "tcpdump",
        why: "captures packets on a switch of the lab",
        brings: Brings::Command("tcpdump"),
    },
    Package {
        name: "tshark",
        why: "decodes our packets independently",
        brings: Brings::Command("tshark"),
    },
    Package {
        name: "valgrind",
        why: "counts instructions per packet",
        brings: Brings::Command("valgrind"),
    },
];

impl Purpose {
    fn wanted(self) -> impl Iterator<Item = &'static Package> {
        let test = match self {
            Purpose::Build => &[],
            Purpose::Test => TEST,
        };
        BUILD.iter().chain(test)
    }
}

/// Why the packages are not there. One line each.
#[derive(Debug)]
pub(crate) enum SetupError {
    /// Neither root nor sudo.
    NotAllowed { missing: Vec<&'static str> },
    /// Not a Debian.
    NoApt { missing: Vec<&'static str> },
    /// apt-get failed.
    Failed {
        command: String,
        missing: Vec<&'static str>,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::NotAllowed { missing } => write!(
                f,
                "{} missing, and installing needs root or sudo; as root: apt-get install {}",
                plural(missing.len()),
                missing.join(" ")
            ),
            SetupError::NoApt { missing } => write!(
                f,
                "{} missing and this is no Debian or Ubuntu (no apt-get); install what corresponds to {} and use --no-setup",
                plural(missing.len()),
                missing.join(" ")
            ),
            SetupError::Failed { command, missing } => write!(
                f,
                "`{command}` failed (see above; is there a network?); install by hand: apt-get install {}",
                missing.join(" ")
            ),
        }
    }
}

fn plural(count: usize) -> String {
    if count == 1 {
        "1 system package is".to_owned()
    } else {
        format!("{count} system packages are")
    }
}

/// Installs what is missing for `purpose`, after saying what and why. Does nothing when nothing is missing.
pub(crate) fn install_missing(purpose: Purpose, privilege: Privilege) -> Result<(), SetupError> {
    let missing = missing(purpose);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    if !privilege.can_install() {
        return Err(SetupError::NotAllowed { missing: names });
    }
    if in_path("apt-get").is_none() {
        return Err(SetupError::NoApt { missing: names });
    }
    println!(
        "installing {} with apt-get{}:",
        count(names.len()),
        if privilege == Privilege::Sudo {
            " through sudo"
        } else {
            ""
        }
    );
    for package in &missing {
        println!("  {:<14} {}", package.name, package.why);
    }
    let [update, install] = apt_commands(&names);
    // One repository of somebody else's that is out of order makes an update fail; what is needed may still be known.
    if let Err(command) = run_apt(privilege, &update) {
        eprintln!("warning: `{command}` failed, going on with the package lists that are there");
    }
    run_apt(privilege, &install).map_err(|command| SetupError::Failed {
        command,
        missing: names,
    })?;
    Ok(())
}

fn count(packages: usize) -> String {
    if packages == 1 {
        "1 package".to_owned()
    } else {
        format!("{packages} packages")
    }
}

/// Whether what the build needs is there.
pub(crate) fn can_build() -> bool {
    missing(Purpose::Build).is_empty()
}

fn missing(purpose: Purpose) -> Vec<&'static Package> {
    let wanted: Vec<_> = purpose.wanted().collect();
    let installed = installed(&wanted);
    wanted
        .into_iter()
        .filter(|package| !installed.contains(package.name) && !package.brings.is_there())
        .collect()
}

impl Brings {
    fn is_there(&self) -> bool {
        match self {
            Brings::Command(name) => in_path(name).is_some(),
            Brings::File(path) => Path::new(path).exists(),
        }
    }
}

fn installed(wanted: &[&'static Package]) -> HashSet<String> {
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(wanted.iter().map(|package| package.name))
        .output();
    // Unknown packages make it fail, and still it lists the known ones.
    output
        .map(|output| parse_installed(&String::from_utf8_lossy(&output.stdout)))
        .unwrap_or_default()
}

fn parse_installed(listing: &str) -> HashSet<String> {
    listing
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        .map(str::to_owned)
        .collect()
}

fn apt_commands(names: &[&str]) -> [Vec<String>; 2] {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut install = words(&["install", "--yes", "--no-install-recommends"]);
    install.extend(words(names));
    [words(&["update", "--quiet"]), install]
}

/// Returns the command as a user would type it when it fails.
fn run_apt(privilege: Privilege, arguments: &[String]) -> Result<(), String> {
    // Behind sudo the environment is not kept, so it goes through `env`.
    let mut words: Vec<&str> = privilege.prefix().to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    words.extend(arguments.iter().map(String::as_str));
    let shown = format!("apt-get {}", arguments.join(" "));
    let (first, rest) = words.split_first().ok_or_else(|| shown.clone())?;
    match Command::new(first)
        .args(rest)
        .stdin(std::process::Stdio::inherit())
        .status()
    {
        Ok(status) if status.success() => Ok(()),
        _ => Err(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fully_installed_packages_count() {
        let listing = "clang installed\nmake config-files\nm4 half-installed\nlibelf-dev installed\n";
        let installed = parse_installed(listing);
        assert!(installed.contains("clang") && installed.contains("libelf-dev"));
        assert!(!installed.contains("make") && !installed.contains("m4"));
    }

    #[test]
    fn apt_asks_no_questions_and_names_the_packages() {
        let [update, install] = apt_commands(&["clang", "m4"]);
        assert_eq!(update, ["update", "--quiet"]);
        assert_eq!(install, ["install", "--yes", "--no-install-recommends", "clang", "m4"]);
    }

    #[test]
    fn testing_wants_what_building_wants() {
        let test: Vec<_> = Purpose::Test.wanted().map(|package| package.name).collect();
        assert!(Purpose::Build.wanted().all(|package| test.contains(&package.name)));
        assert!(test.contains(&"tshark"));
    }

    #[test]
    fn errors_are_one_line_and_name_the_packages() {
        let missing = vec!["clang", "m4"];
        for error in [
            SetupError::NotAllowed {
                missing: missing.clone(),
            },
            SetupError::NoApt {
                missing: missing.clone(),
            },
            SetupError::Failed {
                command: "apt-get update".to_owned(),
                missing,
            },
        ] {
            let text = error.to_string();
            assert!(text.contains("clang m4"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn what_is_there_from_elsewhere_is_not_missing() {
        assert!(Brings::Command("sh").is_there());
        assert!(Brings::File("/proc/self/status").is_there());
        assert!(!Brings::Command("no-such-command-anywhere").is_there());
    }
}
