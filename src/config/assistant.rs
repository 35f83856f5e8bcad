//! `[assistant]`: what the site offers to coding assistants, and the model that answers questions of readers.

use std::net::{IpAddr, Ipv6Addr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use docwharf_agent::analytics::key_file::mode_warning;
use docwharf_base::net::NetworkSettings;
use docwharf_serve::{AskSettings, AssistantSettings, HostList};

use super::checker::ValueChecker;
use super::deployment::check_outbound_url;
use super::problem::ConfigProblem;
use super::value_parsers::{parse_base_url, parse_domain};

const BASE_URL: &str = "assistant.baseUrl";
const MODEL: &str = "assistant.model";
const KEY_FILE: &str = "assistant.keyFile";
const HOSTS: &str = "assistant.hosts";
/// The name of the systemd credential that has the key of the endpoint.
const KEY_CREDENTIAL: &str = "assistant-key";
/// The maximum number of hosts of the site. Each request is compared with all of them.
const MAX_HOSTS: usize = 100;
/// The maximum length of the name of a model in characters. It is part of each answer.
const MAX_MODEL_CHARS: usize = 200;

const DEFAULT_MAX_QUESTION: u32 = 1000;
const DEFAULT_MAX_CONTEXT: u32 = 24_000;
const DEFAULT_MAX_ANSWER: u32 = 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);
const DEFAULT_PARALLEL: u32 = 2;
const DEFAULT_PER_MINUTE: u32 = 10;
const DEFAULT_PER_DAY: u32 = 2000;

/// Returns a warning if the mode of the file with the key of the endpoint allows more than 0640.
pub fn key_mode_warning(settings: &AssistantSettings) -> Option<String> {
    mode_warning(settings.ask.as_ref()?.key_file.as_deref()?, KEY_FILE)
}

/// Checks `[assistant]`. `network` has the settings of connections to the endpoint.
pub(super) fn check_assistant(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
    network: &NetworkSettings,
) -> AssistantSettings {
    let defaults = AssistantSettings::default();
    AssistantSettings {
        mcp: checker.flag("assistant.mcp").unwrap_or(defaults.mcp),
        mcp_per_minute: read_number(checker, "assistant.mcpPerMinute").unwrap_or(defaults.mcp_per_minute),
        markdown: checker.flag("assistant.markdown").unwrap_or(defaults.markdown),
        llms: checker.flag("assistant.llms").unwrap_or(defaults.llms),
        hosts: check_hosts(checker).unwrap_or(defaults.hosts),
        ask: check_ask(checker, base_of, warnings, network),
    }
}

fn check_ask(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    warnings: &mut Vec<ConfigProblem>,
    network: &NetworkSettings,
) -> Option<AskSettings> {
    let base_url = checker.parsed(BASE_URL, |text| check_outbound_url(parse_base_url(text)?, &network.outbound));
    let model = checker.parsed(MODEL, parse_model);
    let key_file = check_key_file(checker, base_of);
    let max_question = number_or(checker, "assistant.maxQuestion", DEFAULT_MAX_QUESTION);
    let max_context = number_or(checker, "assistant.maxContext", DEFAULT_MAX_CONTEXT);
    let max_answer = number_or(checker, "assistant.maxAnswer", DEFAULT_MAX_ANSWER);
    let timeout = checker.duration("assistant.timeout").unwrap_or(DEFAULT_TIMEOUT);
    let parallel = number_or(checker, "assistant.parallel", DEFAULT_PARALLEL);
    let per_minute = number_or(checker, "assistant.perMinute", DEFAULT_PER_MINUTE);
    let per_day = number_or(checker, "assistant.perDay", DEFAULT_PER_DAY);
    let raw = checker.raw;
    for (present, missing) in [(BASE_URL, MODEL), (MODEL, BASE_URL)] {
        if let (Some(written), None) = (raw.get(present), raw.get(missing)) {
            let message = format!("{missing} is missing: questions are answered with baseUrl and model, or not at all");
            checker.problems.push(ConfigProblem { place: written.place.clone(), message });
        }
    }
    let base_url = base_url?;
    if let Some(written) = raw.get(BASE_URL)
        && key_file.is_some()
        && !base_url.is_encrypted()
        && !base_url.is_loopback()
    {
        let message = format!("{BASE_URL}: plain http: the key can be read in transit");
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    Some(AskSettings {
        base_url,
        model: model?,
        key_file,
        max_question: to_usize(max_question),
        max_context: to_usize(max_context),
        max_answer,
        timeout,
        parallel: to_usize(parallel),
        per_minute,
        per_day,
        network: network.clone(),
    })
}

/// Returns the file with the key of the endpoint: that of the key, else the systemd credential if there is one.
fn check_key_file(checker: &mut ValueChecker<'_>, base_of: &dyn Fn(&str) -> PathBuf) -> Option<PathBuf> {
    let file = checker.text(KEY_FILE).map(|path| base_of(KEY_FILE).join(path));
    file.or_else(|| {
        let credential = checker.raw.credentials.find(KEY_CREDENTIAL)?;
        credential.path.exists().then_some(credential.path)
    })
}

/// Reads a whole number that is not 0; the table of keys has its bounds.
pub(super) fn read_number(checker: &mut ValueChecker<'_>, key: &str) -> Option<NonZeroU32> {
    let number = checker.number(key)?;
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}

/// Reads a whole number that is not 0, with a default.
pub(super) fn number_or(checker: &mut ValueChecker<'_>, key: &str, default: u32) -> NonZeroU32 {
    read_number(checker, key).or_else(|| NonZeroU32::new(default)).unwrap_or(NonZeroU32::MIN)
}

fn to_usize(number: NonZeroU32) -> NonZeroUsize {
    NonZeroUsize::try_from(number).unwrap_or(NonZeroUsize::MAX)
}

fn parse_model(text: &str) -> Result<String, String> {
    let chars = text.chars().count();
    if chars > MAX_MODEL_CHARS {
        return Err(format!("a name of {chars} characters; at most {MAX_MODEL_CHARS} are allowed"));
    }
    if text.contains(char::is_control) {
        return Err(format!("{text:?} is not the name of a model"));
    }
    Ok(text.to_owned())
}

/// Checks `assistant.hosts`. Empty elements come from an empty value in the environment.
fn check_hosts(checker: &mut ValueChecker<'_>) -> Option<HostList> {
    let texts: Vec<String> = checker.texts(HOSTS)?.into_iter().filter(|text| !text.is_empty()).collect();
    let hosts = match texts.len() {
        number if number > MAX_HOSTS => Err(format!("{number} hosts; at most {MAX_HOSTS} are allowed")),
        _ => texts.iter().map(|text| parse_own_host(text)).collect::<Result<Vec<String>, String>>(),
    };
    match hosts {
        Ok(hosts) => Some(HostList::parse(&hosts)),
        Err(why) => {
            checker.value::<()>(HOSTS, |_| Err(why));
            None
        }
    }
}

/// Parses a host as it is in the field `Host` (RFC 9110, section 7.2): a name or an IP address, with or without a
/// port. The result is in lower case; an address of IPv6 is in its shortest form and in brackets.
fn parse_own_host(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a host: write it like docs.example.com or docs.example.com:8443");
    let text = text.trim();
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => format!("[{}]", address.parse::<Ipv6Addr>().map_err(|_| wrong())?),
        None if host.parse::<IpAddr>().is_ok() => host.to_owned(),
        None => parse_domain(host).map_err(|_| wrong())?.to_ascii_lowercase(),
    };
    let Some(port) = port else { return Ok(host) };
    // `u16` would accept a sign.
    let number = port.parse::<u16>().ok().filter(|&number| number > 0 && !port.starts_with('+'));
    number.map(|number| format!("{host}:{number}")).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::systemd_credentials::SystemdCredentials;
    use crate::config::written::WrittenConfig;

    /// Checks the section of a configuration: the settings and the warnings, or the mistakes.
    fn checked_with(
        text: &str,
        credentials: SystemdCredentials,
    ) -> Result<(AssistantSettings, Vec<String>), Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        raw.credentials = credentials;
        let problems = std::mem::take(&mut raw.problems);
        let mut checker = ValueChecker { raw: &raw, problems };
        let mut warnings = Vec::new();
        let base_of = |_: &str| PathBuf::from("/etc");
        let settings = check_assistant(&mut checker, &base_of, &mut warnings, &NetworkSettings::default());
        let lines = |problems: &[ConfigProblem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        if checker.problems.is_empty() { Ok((settings, lines(&warnings))) } else { Err(lines(&checker.problems)) }
    }

    fn checked(text: &str) -> Result<(AssistantSettings, Vec<String>), Vec<String>> {
        checked_with(text, SystemdCredentials::None)
    }

    const ENDPOINT: &str = "[assistant]\nbaseUrl = \"http://127.0.0.1:11434/v1\"\nmodel = \"llama3.1\"\n";

    #[test]
    fn without_the_section_assistants_can_read_the_site_and_no_question_is_answered() {
        assert_eq!(checked(""), Ok((AssistantSettings::default(), Vec::new())));
        let defaults = AssistantSettings::default();
        assert!(defaults.mcp && defaults.markdown && defaults.llms && defaults.ask.is_none());
        let text = "[assistant]\nmcp = false\nmcpPerMinute = 7\nmarkdown = false\nllms = false\nmaxAnswer = 5\n";
        let (settings, _) = checked(text).unwrap();
        assert!(!settings.mcp && !settings.markdown && !settings.llms && settings.ask.is_none());
        assert_eq!(settings.mcp_per_minute.get(), 7);
    }

    #[test]
    fn with_an_endpoint_and_a_model_questions_are_answered_within_the_default_bounds() {
        let (settings, warnings) = checked(ENDPOINT).unwrap();
        let ask = settings.ask.clone().expect("it is on");
        assert_eq!((ask.base_url.to_string(), ask.model.as_str()), ("http://127.0.0.1:11434/v1".into(), "llama3.1"));
        let lengths = (ask.max_question.get(), ask.max_context.get(), ask.max_answer.get());
        assert_eq!((lengths, ask.timeout, ask.key_file), ((1000, 24_000, 1024), Duration::from_mins(1), None));
        assert_eq!((ask.parallel.get(), ask.per_minute.get(), ask.per_day.get()), (2, 10, 2000));
        assert!(warnings.is_empty() && settings.without_ask().ask.is_none());
        let more = "maxQuestion = 1\nmaxContext = 1000\nmaxAnswer = 2\ntimeout = \"3s\"\nparallel = 4\nperMinute = 5\n\
                    perDay = 6\nkeyFile = \"key\"\n";
        let ask = checked(&format!("{ENDPOINT}{more}")).unwrap().0.ask.expect("it is on");
        let lengths = (ask.max_question.get(), ask.max_context.get(), ask.max_answer.get());
        assert_eq!(
            (lengths, ask.timeout, ask.key_file),
            ((1, 1000, 2), Duration::from_secs(3), Some("/etc/key".into()))
        );
        assert_eq!((ask.parallel.get(), ask.per_minute.get(), ask.per_day.get()), (4, 5, 6));
    }

    #[test]
    fn an_endpoint_without_a_model_and_a_model_without_an_endpoint_are_mistakes() {
        let reason = "is missing: questions are answered with baseUrl and model, or not at all";
        for (text, missing) in [
            ("[assistant]\nbaseUrl = \"http://127.0.0.1:1/v1\"\n", MODEL),
            ("[assistant]\nmodel = \"llama3.1\"\nmaxAnswer = 7\n", BASE_URL),
        ] {
            assert_eq!(checked(text), Err(vec![format!("c.toml:2:1: {missing} {reason}")]), "{text}");
        }
    }

    #[test]
    fn each_mistake_of_the_assistant_is_one_line_that_names_its_key_and_no_secret() {
        let with_model = |base: &str| format!("[assistant]\nbaseUrl = \"{base}\"\nmodel = \"m\"\n");
        let user = "an API's address has no user name and no password: the key identifies the client";
        let long = format!("[assistant]\nmodel = \"{}\"\nbaseUrl = \"http://[::1]/\"\n", "m".repeat(201));
        let hosts = format!("[assistant]\nhosts = [{}]\n", "\"a.example\",".repeat(101));
        for (text, expected) in [
            (with_model("https://ada:secret-value@api.example/v1"), format!("baseUrl: {user}")),
            (with_model("https://api.example/v1?key=secret-value"), {
                "baseUrl: an API's address has neither query nor fragment".to_owned()
            }),
            (with_model("ftp://api.example/v1"), "baseUrl: it is not http or https but \"ftp\"".to_owned()),
            (with_model(""), "baseUrl: it is empty".to_owned()),
            (long, "model: a name of 201 characters; at most 200 are allowed".to_owned()),
            ("[assistant]\nkeyFile = \"\"\n".to_owned(), "keyFile: it is empty".to_owned()),
            (hosts, "hosts: 101 hosts; at most 100 are allowed".to_owned()),
        ] {
            assert_eq!(checked(&text), Err(vec![format!("c.toml:2:1: assistant.{expected}")]), "{text}");
        }
    }

    #[test]
    fn a_key_that_would_be_sent_over_plain_http_to_another_machine_is_a_warning() {
        let warnings = |base: &str, more: &str| {
            let text = format!("[assistant]\nbaseUrl = \"{base}\"\nmodel = \"m\"\n{more}");
            checked(&text).unwrap().1
        };
        let expected = "c.toml:2:1: assistant.baseUrl: plain http: the key can be read in transit";
        assert_eq!(warnings("http://10.0.0.1/v1", "keyFile = \"key\"\n"), [expected]);
        for (base, more) in [
            ("http://10.0.0.1/v1", ""),
            ("http://[::1]/v1", "keyFile = \"k\"\n"),
            ("https://a/v1", "keyFile = \"k\"\n"),
        ] {
            assert!(warnings(base, more).is_empty(), "{base} {more}");
        }
    }

    #[test]
    fn the_key_is_in_the_file_of_the_configuration_or_in_the_systemd_credential() {
        let folder = tempfile::tempdir().unwrap();
        let key_file = |more: &str| {
            let credentials = SystemdCredentials::Passed(folder.path().to_owned());
            checked_with(&format!("{ENDPOINT}{more}"), credentials).unwrap().0.ask.expect("it is on").key_file
        };
        assert_eq!(key_file(""), None, "the credential is not passed");
        let credential = folder.path().join(KEY_CREDENTIAL);
        std::fs::write(&credential, "key").unwrap();
        assert_eq!(key_file(""), Some(credential));
        assert_eq!(key_file("keyFile = \"/srv/key\"\n"), Some("/srv/key".into()));
    }

    #[test]
    fn a_host_of_the_site_is_a_name_or_an_address_with_or_without_a_port() {
        for (text, host) in [
            (" Docs.Example.COM ", "docs.example.com"),
            ("docs.example.com:8443", "docs.example.com:8443"),
            ("docs", "docs"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("2001:DB8:0::1", "[2001:db8::1]"),
            ("[2001:db8:0::1]", "[2001:db8::1]"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(parse_own_host(text).as_deref(), Ok(host), "{text:?}");
        }
        for wrong in [
            "https://docs.example.com",
            "docs.example.com/",
            "*.example.com",
            "docs.example.com:",
            "docs.example.com:0",
            "docs.example.com:+80",
            "docs.example.com:65536",
            "ada@docs.example.com",
            "[docs.example.com]",
            "[::1",
            "::1]:80",
            "a b",
            ":80",
        ] {
            let message = format!("{wrong:?} is not a host: write it like docs.example.com or docs.example.com:8443");
            assert_eq!(parse_own_host(wrong), Err(message.clone()));
            let problem = format!("c.toml:2:1: assistant.hosts: {message}");
            assert_eq!(checked(&format!("[assistant]\nhosts = [\"a.example\", {wrong:?}]\n")), Err(vec![problem]));
        }
        let (settings, _) = checked("[assistant]\nhosts = \"A.example, b.example:1\"\n").unwrap();
        assert_eq!(settings.hosts, HostList::parse(&["a.example", "b.example:1"]));
        assert!(checked("[assistant]\nhosts = \"\"\n").unwrap().0.hosts.is_empty());
    }
}
