//! Groups of endpoints, and who may call them: `http.restricted_api`, `grpc.restricted_protocol` (Triton's flags have the same names) and
//! `[auth]`.

use std::fmt;
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::key::{SettingValue, ValueKind};
use crate::config::fault::did_you_mean;

/// Replaces a secret in output.
pub(super) const MASK: &str = "***";

/// A group of endpoints that can be restricted as a whole, under Triton's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiGroup {
    Health,
    Metadata,
    Inference,
    SharedMemory,
    ModelConfig,
    ModelRepository,
    Statistics,
    Trace,
    Logging,
}

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireProtocol {
    Http,
    Grpc,
}

/// A text that must not appear in logs, errors or pages.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The header that a restricted group requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restriction {
    /// The header's name, as refusals print it.
    pub header: String,
    pub secret: Secret,
}

/// The restricted groups of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restrictions([Option<Restriction>; ApiGroup::ALL.len()]);

/// The restricted groups of both protocols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestrictedGroups {
    pub http: Restrictions,
    pub grpc: Restrictions,
}

/// Restricted groups in the form of the settings, `GROUP,GROUP:KEY=VALUE` each. Sequor prints an entry only up to its value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RestrictionTexts(Vec<String>);

/// The requests that need a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyedGroups {
    /// All groups except health, whose requests come from probes.
    AllButHealth,
    Only(Vec<ApiGroup>),
}

/// The keys of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuth {
    pub keys_file: PathBuf,
    pub keyed: KeyedGroups,
}

impl ApiGroup {
    pub const ALL: [ApiGroup; 9] = [
        ApiGroup::Health,
        ApiGroup::Metadata,
        ApiGroup::Inference,
        ApiGroup::SharedMemory,
        ApiGroup::ModelConfig,
        ApiGroup::ModelRepository,
        ApiGroup::Statistics,
        ApiGroup::Trace,
        ApiGroup::Logging,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            ApiGroup::Health => "health",
            ApiGroup::Metadata => "metadata",
            ApiGroup::Inference => "inference",
            ApiGroup::SharedMemory => "shared-memory",
            ApiGroup::ModelConfig => "model-config",
            ApiGroup::ModelRepository => "model-repository",
            ApiGroup::Statistics => "statistics",
            ApiGroup::Trace => "trace",
            ApiGroup::Logging => "logging",
        }
    }

    fn named(name: &str) -> Option<ApiGroup> {
        ApiGroup::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// Other names of groups, for `auth.restricted`.
const SHORT: [(&str, ApiGroup); 2] = [("repository", ApiGroup::ModelRepository), ("log", ApiGroup::Logging)];

impl KeyedGroups {
    /// Parses the names of `auth.restricted`.
    pub(super) fn parse(names: Option<&[String]>) -> Result<KeyedGroups, String> {
        let group = |name: &String| {
            let short = SHORT.iter().find(|(short, _)| short == name).map(|(_, group)| *group);
            short.or_else(|| ApiGroup::named(name)).ok_or_else(|| {
                let names = || SHORT.iter().map(|(short, _)| *short).chain(ApiGroup::ALL.map(ApiGroup::name));
                let (all, near) = (names().collect::<Vec<_>>().join(", "), did_you_mean(name, names()));
                format!("auth.restricted: \"{name}\" is no group of endpoints ({all}){near}")
            })
        };
        match names {
            None => Ok(KeyedGroups::AllButHealth),
            Some([]) => {
                Err("auth.restricted is empty, so no request would need a key: name a group, or leave it out"
                    .to_owned())
            }
            Some(names) => names.iter().map(group).collect::<Result<_, _>>().map(KeyedGroups::Only),
        }
    }

    /// Whether a request to this group needs a key.
    pub fn need_key(&self, group: Option<ApiGroup>) -> bool {
        match self {
            KeyedGroups::AllButHealth => group != Some(ApiGroup::Health),
            KeyedGroups::Only(keyed) => group.is_some_and(|group| keyed.contains(&group)),
        }
    }
}

impl WireProtocol {
    /// Triton's flag for restricted groups of this protocol.
    const fn flag(self) -> &'static str {
        match self {
            WireProtocol::Http => "http-restricted-api",
            WireProtocol::Grpc => "grpc-restricted-protocol",
        }
    }

    /// Triton's word for a group of this protocol.
    pub const fn word(self) -> &'static str {
        match self {
            WireProtocol::Http => "api",
            WireProtocol::Grpc => "protocol",
        }
    }

    /// The prefix of the header that the key of a restricted group stands for.
    const fn prefix(self) -> &'static str {
        match self {
            WireProtocol::Http => "",
            WireProtocol::Grpc => "triton-grpc-protocol-",
        }
    }
}

impl Secret {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl RestrictedGroups {
    pub fn of(&self, protocol: WireProtocol) -> &Restrictions {
        match protocol {
            WireProtocol::Http => &self.http,
            WireProtocol::Grpc => &self.grpc,
        }
    }

    /// Whether no group is restricted.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.grpc.is_empty()
    }
}

impl Restrictions {
    /// Parses the entries of one protocol. The sentences begin as Triton's do, but repeat no entry: it may hold a secret anywhere.
    pub(super) fn parse(texts: &RestrictionTexts, protocol: WireProtocol) -> Result<Restrictions, String> {
        let word = protocol.word();
        let mut all = Restrictions::default();
        for text in &texts.0 {
            let (groups, header, secret) = split(text).ok_or_else(|| malformed(protocol))?;
            check_header(header)?;
            check_secret(secret)?;
            let header = format!("{}{header}", protocol.prefix());
            let restriction = Restriction { header, secret: Secret(secret.to_owned()) };
            for name in groups.split(',') {
                let Some(group) = ApiGroup::named(name) else {
                    if name.contains('=') {
                        return Err(malformed(protocol));
                    }
                    let names = ApiGroup::ALL.map(ApiGroup::name);
                    let near = did_you_mean(name, names);
                    return Err(format!("unknown restricted {word} '{name}' (there are {}{near})", names.join(", ")));
                };
                let slot = all.0.get_mut(group as usize).ok_or_else(|| malformed(protocol))?;
                if slot.replace(restriction.clone()).is_some() {
                    return Err(format!("restricted {word} '{name}' can not be specified in multiple config groups"));
                }
            }
        }
        Ok(all)
    }

    pub fn of(&self, group: ApiGroup) -> Option<&Restriction> {
        self.0.get(group as usize)?.as_ref()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// Groups, key and value. The first colon and the first equals sign behind it divide them, as in Triton.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (groups, rest) = text.split_once(':')?;
    let (header, secret) = rest.split_once('=')?;
    let is_whole = !groups.is_empty() && !header.is_empty() && !secret.is_empty();
    is_whole.then_some((groups, header, secret))
}

fn malformed(protocol: WireProtocol) -> String {
    format!("--{} option format is '<config name>:<setting>=<value>': GROUP,GROUP:KEY=VALUE", protocol.flag())
}

/// Refuses a key that no header can have. Otherwise its groups could never be called.
fn check_header(header: &str) -> Result<(), String> {
    let may = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if header.chars().all(may) {
        return Ok(());
    }
    Err("the key of a restricted group must be the name of a header: letters, digits and hyphens".to_owned())
}

/// Refuses a value that no header can have, for the same reason.
fn check_secret(secret: &str) -> Result<(), String> {
    if secret.trim() == secret && !secret.contains(char::is_control) {
        return Ok(());
    }
    Err("the value of a restricted group begins or ends with a space, or holds a control character: no header can have it"
        .to_owned())
}

/// The printable part of an entry.
fn masked(text: &str) -> String {
    match split(text) {
        Some((groups, header, _)) => format!("{groups}:{header}={MASK}"),
        None => MASK.to_owned(),
    }
}

impl SettingValue for RestrictionTexts {
    const KIND: ValueKind = ValueKind::Restrictions;
}

impl fmt::Debug for RestrictionTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|text| masked(text))).finish()
    }
}

impl Serialize for RestrictionTexts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|text| masked(text)))
    }
}

impl<'de> Deserialize<'de> for RestrictionTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RestrictionTexts, D::Error> {
        deserializer.deserialize_any(ReadTexts)
    }
}

/// Deserializes a list of entries, or a single entry. If a text is in place of a list, serde's own error would repeat the text.
struct ReadTexts;

impl<'de> Visitor<'de> for ReadTexts {
    type Value = RestrictionTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts, GROUP,GROUP:KEY=VALUE each")
    }

    fn visit_str<E>(self, text: &str) -> Result<RestrictionTexts, E> {
        Ok(RestrictionTexts(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RestrictionTexts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = list.next_element()? {
            texts.push(text);
        }
        Ok(RestrictionTexts(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(protocol: WireProtocol, texts: &[&str]) -> Result<Restrictions, String> {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Restrictions::parse(&RestrictionTexts(texts), protocol)
    }

    #[test]
    fn an_entry_names_groups_a_header_and_a_secret() {
        let http = parse(WireProtocol::Http, &["model-repository,trace:Admin-Key=a:b=c", "inference:k=v"]).unwrap();
        let of = |all: &Restrictions, group| all.of(group).map(|r| (r.header.clone(), r.secret.expose().to_owned()));
        let pair = |header: &str, secret: &str| Some((header.to_owned(), secret.to_owned()));
        assert_eq!(of(&http, ApiGroup::ModelRepository), pair("Admin-Key", "a:b=c"));
        assert_eq!(of(&http, ApiGroup::Trace), pair("Admin-Key", "a:b=c"));
        assert_eq!(of(&http, ApiGroup::Inference), pair("k", "v"));
        assert_eq!((of(&http, ApiGroup::Health), http.is_empty()), (None, false));
        let grpc = parse(WireProtocol::Grpc, &["health:k=v"]).unwrap();
        assert_eq!(of(&grpc, ApiGroup::Health), pair("triton-grpc-protocol-k", "v"));
        assert!(parse(WireProtocol::Grpc, &[]).unwrap().is_empty());
    }

    #[test]
    fn the_faults_are_tritons_and_repeat_no_secret() {
        let fault = |texts: &[&str]| parse(WireProtocol::Http, texts).unwrap_err();
        assert!(
            fault(&["model-reposit,health:k1=v1"])
                .starts_with("unknown restricted api 'model-reposit' (there are health, metadata, ")
        );
        assert_eq!(
            fault(&["model-repository,health:k1=v1", "metadata,health:k2=v2"]),
            "restricted api 'health' can not be specified in multiple config groups"
        );
        let fault_of_grpc = parse(WireProtocol::Grpc, &["health,health:k=v"]).unwrap_err();
        assert_eq!(fault_of_grpc, "restricted protocol 'health' can not be specified in multiple config groups");
        for text in
            ["", "s3cret", "health", "health:", "health:k", "health:k=", ":k=s3cret", "health,k=s3cret", "k=s3cret:a=b"]
        {
            let message = fault(&[text]);
            assert!(message.starts_with("--http-restricted-api option format is"), "{text}: {message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
        for text in ["health:a key=s3cret", "health:k= s3cret", "health:k=s3cret\u{7}"] {
            let message = fault(&[text]);
            assert!(!message.contains("s3cret"), "{message}");
        }
    }

    #[test]
    fn keys_are_for_all_but_health_or_for_the_groups_that_are_named() {
        let parse =
            |names: &[&str]| KeyedGroups::parse(Some(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()));
        let all = KeyedGroups::parse(None).unwrap();
        let groups = ApiGroup::ALL.into_iter().filter(|group| !all.need_key(Some(*group)));
        assert_eq!((groups.collect::<Vec<_>>(), all.need_key(None)), (vec![ApiGroup::Health], true));
        let some = parse(&["repository", "trace", "log", "model-config"]).unwrap();
        let groups = ApiGroup::ALL.into_iter().filter(|group| some.need_key(Some(*group)));
        let named = [ApiGroup::ModelConfig, ApiGroup::ModelRepository, ApiGroup::Trace, ApiGroup::Logging];
        assert_eq!((groups.collect::<Vec<_>>(), some.need_key(None)), (named.to_vec(), false));
        let unknown = parse(&["trace", "repositry"]).unwrap_err();
        assert!(unknown.ends_with("; did you mean \"repository\"?"), "{unknown}");
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn the_debug_output_of_a_restriction_hides_its_secret() {
        let texts = RestrictionTexts(vec!["health:k=s3cret".to_owned(), "s3cret".to_owned()]);
        let table = toml::Value::try_from(&texts).unwrap();
        assert_eq!(table.to_string(), "[\"health:k=***\", \"***\"]");
        assert_eq!(format!("{texts:?}"), "[\"health:k=***\", \"***\"]");
        let parsed = parse(WireProtocol::Http, &["health:k=s3cret"]).unwrap();
        assert!(!format!("{parsed:?}").contains("s3cret"), "{parsed:?}");
    }
}
