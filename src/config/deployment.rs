//! `[deployment]`: where docwharf runs, and to which addresses it may connect.

use docwharf_base::model::deployment::{AllowedAddress, DeploymentSettings, DeploymentType, OutboundPolicy};
use docwharf_base::net::connect::check_url;
use docwharf_base::secret::SafeUrl;

use super::checker::ValueChecker;
use super::problem::ConfigProblem;

/// Checks `[deployment]`. Addresses that have no effect are a warning.
pub(super) fn check_deployment(
    checker: &mut ValueChecker<'_>,
    warnings: &mut Vec<ConfigProblem>,
) -> DeploymentSettings {
    let types = DeploymentType::ALL.map(|deployment_type| (deployment_type.name(), deployment_type));
    let deployment_type = checker.word("deployment.type", &types).unwrap_or_default();
    let allow = check_allowed_addresses(checker, "deployment.allow");
    if let Some(written) = checker.raw.get("deployment.allow")
        && deployment_type != DeploymentType::AirGapped
        && !allow.is_empty()
    {
        let message = format!(
            "deployment.allow: it has no effect, because deployment.type is \"{deployment_type}\"; set the type to \
             \"air-gapped\" or remove the key"
        );
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    DeploymentSettings { deployment_type, allow }
}

/// Checks the URL of a key by which docwharf opens a connection. Every such key is checked with this function. The
/// error message has the host of the URL, but none of its secrets.
pub(super) fn check_outbound_url(url: SafeUrl, policy: &OutboundPolicy) -> Result<SafeUrl, String> {
    check_url(url.expose(), policy).map_err(|error| error.to_string())?;
    Ok(url)
}

/// Reads a list of allowed addresses. Empty elements come from an empty value in the environment.
pub(super) fn check_allowed_addresses(checker: &mut ValueChecker<'_>, key: &str) -> Vec<AllowedAddress> {
    let texts = checker.texts(key).unwrap_or_default();
    let texts = texts.iter().filter(|text| !text.is_empty());
    match texts.map(|text| AllowedAddress::parse(text)).collect::<Result<Vec<_>, String>>() {
        Ok(allow) => allow,
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use docwharf_site::external::csp::CspPreset;

    use super::*;
    use crate::config::checked::{Config, check};
    use crate::config::written::WrittenConfig;

    /// Checks the section: the settings and the warnings, or the mistakes.
    fn checked(text: &str) -> Result<(DeploymentSettings, Vec<String>), Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        let mut checker = ValueChecker { raw: &raw, problems: Vec::new() };
        let mut warnings = Vec::new();
        let deployment = check_deployment(&mut checker, &mut warnings);
        let lines = |problems: &[ConfigProblem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        if checker.problems.is_empty() { Ok((deployment, lines(&warnings))) } else { Err(lines(&checker.problems)) }
    }

    #[test]
    fn deployment_type_and_allowed_addresses_are_read_from_the_section() {
        assert_eq!(checked(""), Ok((DeploymentSettings::default(), Vec::new())));
        for deployment_type in DeploymentType::ALL {
            let (deployment, warnings) = checked(&format!("[deployment]\ntype = \"{deployment_type}\"\n")).unwrap();
            assert_eq!((deployment.deployment_type, deployment.allow, warnings.len()), (deployment_type, vec![], 0));
        }
        let text = "[deployment]\ntype = \"air-gapped\"\nallow = [\"10.0.0.0/8:443\", \"[fd00::/8]:443\"]\n";
        let (deployment, warnings) = checked(text).unwrap();
        let allow: Vec<String> = deployment.allow.iter().map(ToString::to_string).collect();
        assert_eq!((allow.join(" "), warnings.len()), ("10.0.0.0/8:443 [fd00::/8]:443".to_owned(), 0));
        let policy = deployment.outbound_policy();
        let allows = |address: &str| policy.allows(address.parse().unwrap());
        assert!(allows("10.1.2.3:443") && allows("[::1]:9") && !allows("10.1.2.3:80") && !allows("192.0.2.1:443"));
        let (single, _) = checked("[deployment]\ntype = \"air-gapped\"\nallow = \"10.0.0.5, ::2\"\n").unwrap();
        assert_eq!(single.allow.len(), 2);
        let (empty, _) = checked("[deployment]\ntype = \"air-gapped\"\nallow = \"\"\n").unwrap();
        assert_eq!(empty.outbound_policy(), OutboundPolicy::AirGapped { allow: [].into() });
    }

    #[test]
    fn a_wrong_type_or_address_of_a_deployment_is_one_line_that_names_its_key() {
        for (line, expected) in [
            ("type = \"offline\"", "type: \"client-hosted\", \"cloud\" or \"air-gapped\" is needed, not \"offline\""),
            ("type = \"\"", "type: it is empty"),
            ("allow = 5", "allow: a text or a list of texts is needed"),
            (
                "allow = [\"10.0.0.5\", \"api.example:443\"]",
                "allow: \"api.example:443\" is not an address or range: write it like 10.0.0.5, 10.0.0.0/8:443 or \
                 [fd00::/8]:443",
            ),
        ] {
            let problems = checked(&format!("[deployment]\n{line}\n")).unwrap_err();
            assert_eq!(problems, [format!("c.toml:2:1: deployment.{expected}")]);
        }
    }

    #[test]
    fn allowed_addresses_of_a_deployment_that_is_not_air_gapped_are_a_warning() {
        let (deployment, warnings) = checked("[deployment]\ntype = \"cloud\"\nallow = \"10.0.0.5\"\n").unwrap();
        assert_eq!((deployment.allow.len(), deployment.outbound_policy()), (1, OutboundPolicy::Any));
        let start = "c.toml:3:1: deployment.allow: it has no effect, because deployment.type is \"cloud\"; ";
        assert!(warnings.len() == 1 && warnings[0].starts_with(start), "{warnings:?}");
    }

    /// Checks a whole configuration of an air-gapped deployment that may connect to 192.0.2.7, port 443.
    fn checked_air_gapped(text: &str) -> Result<Config, Vec<String>> {
        let mut raw = WrittenConfig::default();
        let section = "[deployment]\ntype = \"air-gapped\"\nallow = [\"192.0.2.7:443\"]\n";
        raw.read_toml(&format!("{section}{text}"), Path::new("c.toml"));
        check(&raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    const REFUSED: &str = "deployment.type is \"air-gapped\", ";

    #[test]
    fn a_key_of_an_air_gapped_deployment_that_leads_elsewhere_is_one_mistake_that_names_it() {
        let api = |base: &str| format!("[api]\nbaseUrl = \"{base}\"\ndomain = \"docs.example.com\"\n");
        let local_api = api("http://127.0.0.1:9/v1");
        let probe = |url: &str| format!("{local_api}[sync]\nprobe = [\"http://localhost/x\", \"{url}\"]\n");
        let bundle = |url: &str| format!("[staticExport]\nbundleUrl = \"{url}\"\n");
        let deliver = |base: &str| format!("[analytics.deliver]\nbaseUrl = \"{base}\"\nkeyFile = \"key\"\n");
        let ask = |base: &str| format!("[assistant]\nbaseUrl = \"{base}\"\nmodel = \"m\"\n");
        let target = |origin: &str| format!("[[playground.allow]]\norigin = \"{origin}\"\n");
        let address = "and 192.0.2.8:443 is neither loopback nor in deployment.allow; add it there";
        let port = "and 192.0.2.7:80 is neither loopback nor in deployment.allow; add it there";
        let name = "so host names are looked up in /etc/hosts only, and docwharf.invalid is not there; add it there, \
                    and its address to deployment.allow unless that is loopback";
        for (text, key, reason) in [
            (api("https://192.0.2.8/v1"), "api.baseUrl", address),
            (api("http://192.0.2.7/v1"), "api.baseUrl", port),
            (api("https://docwharf.invalid/v1"), "api.baseUrl", name),
            (bundle("https://192.0.2.8/b.zip?token=s3cret"), "staticExport.bundleUrl", address),
            (bundle("http://docwharf.invalid/b.zip"), "staticExport.bundleUrl", name),
            (deliver("https://192.0.2.8/v1"), "analytics.deliver.baseUrl", address),
            (deliver("http://192.0.2.7/v1"), "analytics.deliver.baseUrl", port),
            (deliver("https://docwharf.invalid/v1"), "analytics.deliver.baseUrl", name),
            (ask("https://192.0.2.8/v1"), "assistant.baseUrl", address),
            (ask("http://192.0.2.7/v1"), "assistant.baseUrl", port),
            (ask("https://docwharf.invalid/v1"), "assistant.baseUrl", name),
            (target("https://192.0.2.8"), "playground.allow.origin", address),
            (target("http://192.0.2.7"), "playground.allow.origin", port),
            (target("https://docwharf.invalid"), "playground.allow.origin", name),
            (probe("https://192.0.2.8/sitemap.xml"), "sync.probe", address),
            (probe("https://docwharf.invalid/sitemap.xml"), "sync.probe", name),
            (
                format!("{}[sync]\nprobe = \"http://localhost/x\"\n", api("https://192.0.2.8/v1")),
                "api.baseUrl",
                address,
            ),
        ] {
            let problems = checked_air_gapped(&text).unwrap_err();
            assert!(problems.len() == 1, "{text}: {problems:?}");
            assert!(problems[0].ends_with(&format!(": {key}: {REFUSED}{reason}")), "{text}: {problems:?}");
        }
    }

    #[test]
    fn keys_of_an_air_gapped_deployment_may_lead_to_loopback_and_allowed_addresses() {
        let config = checked_air_gapped(
            "[staticExport]\nbundleUrl = \"https://192.0.2.7/b.zip\"\n\
             [api]\nbaseUrl = \"http://localhost:9/v1\"\ndomain = \"docs.example.com\"\n\
             [sync]\nprobe = [\"https://192.0.2.7/sitemap.xml\", \"http://[::1]:9/x\"]\n\
             [assistant]\nbaseUrl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n\
             [[playground.allow]]\norigin = \"https://192.0.2.7\"\n\
             [analytics.deliver]\nbaseUrl = \"http://127.0.0.1:9/v1\"\nkeyFile = \"key\"\n",
        )
        .unwrap();
        assert_eq!(config.sync_settings.probes.len(), 2);
        let policy = config.deployment.outbound_policy();
        assert_eq!(config.sync_settings.network.outbound, policy);
        assert_eq!(config.assistant.ask.map(|ask| ask.network.outbound), Some(policy.clone()));
        assert_eq!(config.playground.settings.network.outbound, policy);
        // A path is no connection, and other deployments may connect anywhere.
        assert!(checked_air_gapped("[staticExport]\nbundleUrl = \"/media/b.zip\"\n").is_ok());
        let mut raw = WrittenConfig::default();
        raw.read_toml("[staticExport]\nbundleUrl = \"https://192.0.2.8/b.zip\"\n", Path::new("c.toml"));
        assert!(check(&raw, Path::new("/etc")).is_ok());
    }

    #[test]
    fn an_air_gapped_deployment_has_no_default_probes_elsewhere_and_the_policy_airgap() {
        let with_api = |domain: &str, more: &str| {
            let api = format!("[api]\nbaseUrl = \"http://127.0.0.1:9/v1\"\ndomain = \"{domain}\"\n");
            checked_air_gapped(&format!("{api}{more}")).unwrap()
        };
        let elsewhere = with_api("docwharf.invalid", "").sync_settings;
        assert_eq!((elsewhere.probes.len(), elsewhere.exports_at_each_check), (0, true));
        let local = with_api("docs.localhost", "").sync_settings;
        assert_eq!((local.probes.len(), local.exports_at_each_check), (2, false));
        let preset = |more: &str| with_api("docs.localhost", more).settings.security_headers.csp.map(|csp| csp.preset);
        assert_eq!(preset(""), Some(CspPreset::Airgap));
        assert_eq!(preset("[server]\ncsp = \"off\"\n"), None);
        assert_eq!(preset("[server]\ncsp = \"connected\"\n"), Some(CspPreset::Connected));
    }
}
