//! An engine's configuration from the environment, and from the file that it names.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;

use mrc_capture::{Request, control};
use mrc_dataplane::config_file;
use mrc_dataplane::engine::{EngineConfig, PortConfig};
use mrc_dataplane::profile::ProfileRef;
use mrc_wire::{Dscps, EvLayout};

use crate::error::{Error, Result};

/// Reads the variables that [`DeviceContext::from_env`](crate::DeviceContext::from_env) lists.
pub(crate) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<EngineConfig> {
    let file = variable("MRC_CONFIG").filter(|path| !path.trim().is_empty());
    let mut config = match &file {
        Some(path) => config_file::read(Path::new(path), EngineConfig::default())?,
        None => EngineConfig::default(),
    };
    config.ports = ports(variable("MRC_PORTS"), config.ports, file.as_deref())?;
    if let Some(name) = variable("MRC_EV_PROFILE") {
        config.profiles.ev_default = Some(ProfileRef::from(name.as_str()));
    }
    if let Some(name) = variable("MRC_CC_PROFILE") {
        config.profiles.cc_default = Some(ProfileRef::from(name.as_str()));
    }
    if let Some(text) = variable("MRC_GID4") {
        config.address_v4 = Some(parse::<Ipv4Addr>("MRC_GID4", &text, "an IPv4 address of this host")?);
    }
    if let Some(text) = variable("MRC_GID6") {
        config.address_v6 = Some(parse::<Ipv6Addr>("MRC_GID6", &text, "an IPv6 address of this host")?);
    }
    if let Some(text) = variable("MRC_UDP_PORT") {
        config.udp_port = parse("MRC_UDP_PORT", &text, "a UDP port, 1 to 65535")?;
    }
    if let Some(text) = variable("MRC_EV_LAYOUT") {
        config.ev_layout = match text.as_str() {
            "flow_hi" => EvLayout::FlowHigh,
            "port_hi" => EvLayout::PortHigh,
            _ => return Err(setting("MRC_EV_LAYOUT", &text, "flow_hi or port_hi")),
        };
    }
    if let Some(text) = variable("MRC_DSCPS") {
        dscps(&mut config.dscps, &text)?;
    }
    if let Some(text) = variable("MRC_THREADS") {
        config.threads = parse("MRC_THREADS", &text, "a number of threads, 1 to 16")?;
    }
    if let Some(text) = variable("MRC_CAPTURE").filter(|text| !text.is_empty()) {
        let captured = Request::with_file(&text).map_err(|error| Error::Setting {
            name: "MRC_CAPTURE",
            value: text,
            problem: error.to_string(),
        })?;
        config.capture.file = Some(captured);
    }
    config.capture.control = control::directory(&variable);
    Ok(config)
}

/// The ports of `MRC_PORTS`, or those of the file. Where both name ports they must be the same, since EVs name ports by number.
fn ports(text: Option<String>, of_file: Vec<PortConfig>, file: Option<&str>) -> Result<Vec<PortConfig>> {
    let text = text.unwrap_or_default();
    let mut ports = listed_ports(&text)?;
    if ports.is_empty() {
        ports = of_file;
    } else if let (false, Some(file)) = (of_file.is_empty(), file) {
        let names = |ports: &[PortConfig]| {
            ports
                .iter()
                .map(|port| port.name.as_str())
                .collect::<Vec<_>>()
                .join(",")
        };
        if names(&ports) != names(&of_file) {
            return Err(Error::Setting {
                name: "MRC_PORTS",
                value: text,
                problem: format!(
                    "{file} has the ports {}: name the same in the same order, or leave it unset",
                    names(&of_file)
                ),
            });
        }
        for (port, other) in ports.iter_mut().zip(of_file) {
            port.link_speed_bps = port.link_speed_bps.or(other.link_speed_bps);
            port.queue = other.queue;
        }
    }
    if ports.is_empty() {
        return Err(setting(
            "MRC_PORTS",
            &text,
            "the interfaces of this host's planes, as in MRC_PORTS=p1,p2",
        ));
    }
    Ok(ports)
}

fn listed_ports(text: &str) -> Result<Vec<PortConfig>> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| match name.split_once('@') {
            None => Ok(PortConfig::new(name)),
            Some((name, mbps)) => {
                const SPEED: &str = "a link speed in Mbit/s, as in p1@200";
                let mbps: u64 = parse("MRC_PORTS", mbps, SPEED)?;
                if mbps == 0 {
                    return Err(setting("MRC_PORTS", text, SPEED));
                }
                Ok(PortConfig {
                    link_speed_bps: Some(mbps.saturating_mul(1_000_000)),
                    ..PortConfig::new(name)
                })
            }
        })
        .collect()
}

fn dscps(dscps: &mut Dscps, text: &str) -> Result<()> {
    const CLASSES: &str = "CLASS=DSCP,... with the classes no_trim, trimmable, trimmable_retx, trimmed, trimmed_lasthop, control and DSCPs 0 to 63 (or none where the fabric has no such class)";
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || setting("MRC_DSCPS", text, CLASSES);
        let (class, value) = part.split_once('=').ok_or_else(wrong)?;
        let value = match value {
            "none" => None,
            number => Some(number.parse::<u8>().ok().filter(|dscp| *dscp < 64).ok_or_else(wrong)?),
        };
        match class {
            "no_trim" => dscps.no_trim = value.ok_or_else(wrong)?,
            "trimmable" => dscps.trimmable = value,
            "trimmable_retx" => dscps.trimmable_retx = value,
            "trimmed" => dscps.trimmed = value.ok_or_else(wrong)?,
            "trimmed_lasthop" => dscps.trimmed_lasthop = value,
            "control" => dscps.control = value.ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
    }
    Ok(())
}

fn parse<T: FromStr>(name: &'static str, text: &str, wanted: &str) -> Result<T> {
    text.trim().parse().map_err(|_| setting(name, text, wanted))
}

fn setting(name: &'static str, value: &str, wanted: &str) -> Error {
    Error::Setting {
        name,
        value: value.into(),
        problem: format!("set it to {wanted}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<EngineConfig> {
        from_environment(|name| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_string())
        })
    }

    #[test]
    fn ports_come_in_order_and_may_carry_a_speed() {
        let config = read(&[("MRC_PORTS", "p1, p2@200,")]).unwrap();
        let ports: Vec<_> = config
            .ports
            .iter()
            .map(|port| (port.name.as_str(), port.link_speed_bps))
            .collect();
        assert_eq!(ports, [("p1", None), ("p2", Some(200_000_000))]);
        assert_eq!(config.udp_port, 4791);
    }

    #[test]
    fn everything_can_be_set() {
        let config = read(&[
            ("MRC_PORTS", "p1"),
            ("MRC_GID4", "192.0.2.1"),
            ("MRC_GID6", "2001:db8::1"),
            ("MRC_UDP_PORT", "5000"),
            ("MRC_EV_LAYOUT", "port_hi"),
            ("MRC_DSCPS", "control=40,trimmable=none"),
            ("MRC_THREADS", "2"),
            ("MRC_CAPTURE", "/tmp/a.pcapng,qp=3 snaplen=96"),
            ("MRC_CONTROL", "/run/mrc"),
        ])
        .unwrap();
        assert_eq!(
            (config.udp_port, config.threads, config.ev_layout),
            (5000, 2, EvLayout::PortHigh)
        );
        assert_eq!(
            (config.dscps.control, config.dscps.trimmable, config.dscps.trimmed),
            (40, None, 12)
        );
        assert_eq!(config.address_v4, Some(Ipv4Addr::new(192, 0, 2, 1)));
        let (file, request) = config.capture.file.unwrap();
        assert_eq!((file, request.snaplen), ("/tmp/a.pcapng".into(), 96));
        let control = config.capture.control.unwrap();
        assert_eq!((control.path, control.is_wanted), ("/run/mrc".into(), true));
    }

    #[test]
    fn a_file_gives_what_the_environment_leaves_open() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let text = "[device]\nudp_port = 5000\nthreads = 2\nev_profile = 'a'\n[[port]]\nname = 'p1'\nspeed_bps = 100_000_000\n\
                    [[port]]\nname = 'p2'\nspeed_bps = 100_000_000\n[[ev_profile]]\nname = 'a'\nmode = 'AUTO'\n";
        file.write_all(text.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let config = read(&[("MRC_CONFIG", path), ("MRC_UDP_PORT", "6000")]).unwrap();
        assert_eq!((config.udp_port, config.threads, config.ports.len()), (6000, 2, 2));
        assert_eq!(config.profiles.ev_default, Some(ProfileRef::Name("a".into())));
        let config = read(&[
            ("MRC_CONFIG", path),
            ("MRC_PORTS", "p1@200,p2"),
            ("MRC_EV_PROFILE", "0"),
        ])
        .unwrap();
        let speeds: Vec<_> = config.ports.iter().map(|port| port.link_speed_bps).collect();
        assert_eq!(speeds, [Some(200_000_000), Some(100_000_000)]);
        assert_eq!(config.profiles.ev_default, Some(ProfileRef::Id(0)));

        let message = read(&[("MRC_CONFIG", path), ("MRC_PORTS", "p2,p1")])
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("MRC_PORTS=\"p2,p1\": ") && message.contains("has the ports p1,p2"),
            "{message}"
        );
        let message = read(&[("MRC_CONFIG", "/nowhere/f.toml")]).unwrap_err().to_string();
        assert!(message.starts_with("/nowhere/f.toml: cannot read it"), "{message}");
    }

    #[test]
    fn wrong_values_name_the_variable_and_the_remedy_in_one_line() {
        for bad in [
            &[][..],
            &[("MRC_PORTS", " , ")],
            &[("MRC_PORTS", "p1@fast")],
            &[("MRC_PORTS", "p1@0")],
            &[("MRC_PORTS", "p1"), ("MRC_UDP_PORT", "70000")],
            &[("MRC_PORTS", "p1"), ("MRC_EV_LAYOUT", "other")],
            &[("MRC_PORTS", "p1"), ("MRC_DSCPS", "control=64")],
            &[("MRC_PORTS", "p1"), ("MRC_DSCPS", "control=none")],
            &[("MRC_PORTS", "p1"), ("MRC_DSCPS", "colour=1")],
            &[("MRC_PORTS", "p1"), ("MRC_GID4", "::1")],
        ] {
            let message = read(bad).expect_err("accepted").to_string();
            assert!(
                message.starts_with("MRC_") && message.contains("set it to") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn a_capture_that_cannot_be_understood_is_refused_by_its_word() {
        let message = read(&[("MRC_PORTS", "p1"), ("MRC_CAPTURE", "a.pcapng,loud")])
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("MRC_CAPTURE=\"a.pcapng,loud\": \"loud\" is no filter"),
            "{message}"
        );
    }
}
