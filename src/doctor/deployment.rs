//! Reports the type of the deployment, and the addresses to which docwharf may connect.

use docwharf_base::model::deployment::{DeploymentSettings, DeploymentType};

use crate::config::checked::Config;

use super::check::DoctorCheck;

pub(super) fn check(config: &Config) -> DoctorCheck {
    DoctorCheck::ok("deployment", describe(&config.deployment))
}

fn describe(deployment: &DeploymentSettings) -> String {
    let deployment_type = deployment.deployment_type;
    if deployment_type != DeploymentType::AirGapped {
        return format!("{deployment_type}: connections to all addresses are allowed");
    }
    let allowed: Vec<String> = deployment.allow.iter().map(ToString::to_string).collect();
    match allowed.as_slice() {
        [] => format!("{deployment_type}: connections to loopback only, names from /etc/hosts"),
        _ => {
            format!("{deployment_type}: connections to loopback and {} only, names from /etc/hosts", allowed.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::deployment::AllowedAddress;

    use super::*;

    #[test]
    fn doctor_names_the_deployment_type_and_the_allowed_addresses() {
        let described = |deployment_type, allow: &[&str]| {
            let allow = allow.iter().map(|text| AllowedAddress::parse(text).unwrap()).collect();
            describe(&DeploymentSettings { deployment_type, allow })
        };
        let cloud = described(DeploymentType::Cloud, &["10.0.0.5"]);
        assert_eq!(cloud, "cloud: connections to all addresses are allowed");
        let loopback = described(DeploymentType::AirGapped, &[]);
        assert_eq!(loopback, "air-gapped: connections to loopback only, names from /etc/hosts");
        let allowed = described(DeploymentType::AirGapped, &["10.0.0.0/8:443", "[fd00::1]:80"]);
        let expected =
            "air-gapped: connections to loopback and 10.0.0.0/8:443, [fd00::1]:80 only, names from /etc/hosts";
        assert_eq!(allowed, expected);
    }
}
