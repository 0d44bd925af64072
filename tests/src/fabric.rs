//! Two hosts of a lab with an engine each.

use mrc_verbs::{ApiVersion, Context, DeviceContext, EngineConfig, Error, ProtectionDomain};
use netns_lab::{Host, Lab, LabError, Topology};

/// An engine on the ports of a host, and the objects that every test wants.
#[derive(Debug)]
pub struct Node {
    /// Parent of completion queues and queue pairs.
    pub context: Context,
    /// Where all regions and queue pairs belong.
    pub pd: ProtectionDomain,
    /// The engine.
    pub device: DeviceContext,
}

/// A lab whose hosts 0 (`a`) and 1 (`b`) run an engine in this process.
#[derive(Debug)]
pub struct Fabric {
    // Before the lab: engines go before their interfaces do.
    /// Host 0.
    pub a: Node,
    /// Host 1.
    pub b: Node,
    /// Everything else.
    pub lab: Lab,
}

impl Node {
    /// Starts an engine with `config` on all ports of a host.
    pub fn open(host: Host<'_>, config: EngineConfig) -> Result<Node, Error> {
        let config = EngineConfig {
            ports: EngineConfig::with_ports(host.port_names()).ports,
            ..config
        };
        Node::open_exactly(host, config)
    }

    /// Starts an engine in a host, on the ports that `config` names.
    ///
    /// # Panics
    /// If the host cannot be entered.
    pub fn open_exactly(host: Host<'_>, config: EngineConfig) -> Result<Node, Error> {
        let device = host
            .enter(|| DeviceContext::open(config))
            .expect("the host can be entered")?;
        Ok(Node {
            context: Context::open(&device, ApiVersion::LATEST)?,
            pd: ProtectionDomain::new(&device)?,
            device,
        })
    }
}

impl Fabric {
    /// Builds `topology` and starts two engines with default settings.
    ///
    /// # Panics
    /// Without root, or if an engine does not start.
    pub fn new(topology: &Topology) -> Fabric {
        Fabric::with(topology, &EngineConfig::default())
    }

    /// As [`new`](Self::new), with these settings.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn with(topology: &Topology, config: &EngineConfig) -> Fabric {
        let lab = Fabric::lab(topology);
        let open =
            |host| Node::open(lab.host(host), config.clone()).unwrap_or_else(|error| panic!("host {host}: {error}"));
        let (a, b) = (open(0), open(1));
        Fabric { a, b, lab }
    }

    /// A lab without engines.
    ///
    /// # Panics
    /// Without root.
    pub fn lab(topology: &Topology) -> Lab {
        match Lab::build(topology) {
            Ok(lab) => lab,
            Err(error @ LabError::Privilege) => panic!("this test needs root: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
