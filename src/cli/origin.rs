//! `docwharf origin`: makes bundles of sites and hands them out, by the management API.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use crate::config::values::parse_listen;
use crate::daemon;
use crate::model::units::parse_duration;
use crate::origin::{self, Domain, LONGEST_LINK, PublicUrl, SHORTEST_LINK, Settings};
use crate::seal::Effort;

use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Origin {
    /// A domain and its folder or archive; may be given several times
    #[arg(long, value_name = "DOMAIN=PATH", required = true)]
    site: Vec<String>,
    /// Where to listen; may be given several times, port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: Vec<String>,
    /// The file with the admin key, which every call of the API must bring; read again when it changes
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// How long a link to a bundle works, 1s to 7d
    #[arg(long, value_name = "DURATION", default_value = "15m")]
    link_lifetime: String,
    /// What links begin with, if not http:// and the host that was asked
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
}

impl Origin {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let addresses = self.listen.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|why| Failure::Usage(format!("--listen: {why}")))?;
        let settings = self.settings(context)?;
        // What is wrong with key or sites is said before anything listens.
        let origin = origin::Origin::new(settings)?;
        let listeners = daemon::bind(&addresses)?;
        Ok(daemon::origin(&origin, listeners)?)
    }

    fn settings(self, context: &Context) -> Result<Settings, Failure> {
        let link_lifetime = parse_duration(&self.link_lifetime).and_then(|life| {
            let fits = (SHORTEST_LINK..=LONGEST_LINK).contains(&life);
            fits.then_some(life).ok_or_else(|| format!("{:?} is not from 1s to 7d", self.link_lifetime))
        });
        let public_url = self.public_url.as_deref().map(PublicUrl::parse).transpose();
        Ok(Settings {
            sites: sites(&self.site).map_err(|why| Failure::Usage(format!("--site: {why}")))?,
            key_file: self.key_file,
            link_lifetime: link_lifetime.map_err(|why| Failure::Usage(format!("--link-lifetime: {why}")))?,
            public_url: public_url.map_err(|why| Failure::Usage(format!("--public-url: {why}")))?,
            effort: Effort::new(context.limits()?),
        })
    }
}

fn sites(texts: &[String]) -> Result<BTreeMap<Domain, PathBuf>, String> {
    let mut sites = BTreeMap::new();
    for text in texts {
        let (domain, path) = text
            .split_once('=')
            .filter(|(_, path)| !path.is_empty())
            .ok_or_else(|| format!("{text:?} names no site; write it like docs.example.com=path/to/site"))?;
        let domain = Domain::parse(domain).map_err(|why| format!("{domain:?}: {why}"))?;
        if let Some(before) = sites.insert(domain.clone(), PathBuf::from(path)) {
            return Err(format!("{domain} is given twice: {} and {path}", before.display()));
        }
    }
    Ok(sites)
}
