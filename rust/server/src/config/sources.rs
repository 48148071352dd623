//! Where settings come from: flags over environment over file over defaults.
//!
//! Each source becomes entries of one TOML table, which is read into [`Config`] once. So a setting is checked and
//! refused in one way, wherever it came from. A text from the environment or a flag takes the type of the default.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};
use tracing::level_filters::LevelFilter;

use super::settings::{Config, HELP, Limits};

/// Prefix of settings in the environment.
const ENVIRONMENT: &str = "FALAJ_SERVER_";

/// The task that the command line asks for.
#[derive(Debug)]
pub enum Begin {
    /// Serve.
    Serve(Box<Config>),
    /// Print a text, and end.
    Print(String),
    /// Make a token for a principal, print it and its digest, and end.
    Mint,
}

/// Read all sources.
///
/// # Errors
/// A sentence for standard error that names the source, the setting and what is allowed.
pub fn load(
    arguments: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Begin, String> {
    let defaults = defaults();
    let matches = match command(&defaults).try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Begin::Print(error.to_string())),
        Err(error) => {
            return Err(error.to_string().trim_end().trim_start_matches("error: ").to_owned());
        }
    };
    if matches.get_flag("mint-token") {
        return Ok(Begin::Mint);
    }
    let mut table = defaults.clone();
    let environment = from_environment(environment, &defaults)?;
    let given = matches.get_one::<String>("config").cloned();
    if let Some(path) = given.or_else(|| environment.file.clone()) {
        merge(&mut table, &read_file(Path::new(&path), &defaults)?);
    }
    let named = matches.get_one::<String>("named").cloned();
    if named.is_some() && matches.contains_id("store") {
        return Err("the store is named twice; give its directory or --store".to_owned());
    }
    if let Some(store) = named.or_else(|| environment.store.clone().filter(|_| is_unnamed(&table)))
    {
        set(&mut table, "store", Value::String(store));
    }
    for (key, text, source) in
        environment.settings.into_iter().chain(from_flags(&matches, &defaults))
    {
        let value =
            typed(&text, default_of(&defaults, &key)).map_err(|why| format!("{source}: {why}"))?;
        set(&mut table, &key, value);
    }
    let config: Config =
        table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
    if matches.get_flag("print-config") {
        return Ok(Begin::Print(print(&config)));
    }
    config.check()?;
    Ok(Begin::Serve(Box::new(config)))
}

/// True if no file has named the store.
fn is_unnamed(table: &Table) -> bool {
    table.get("store").and_then(Value::as_str).is_none_or(str::is_empty)
}

/// The defaults as a table: it has an entry for each setting there is.
fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are a table")
}

fn default_of<'a>(defaults: &'a Table, key: &str) -> &'a Value {
    let found = match key.split_once('.') {
        Some((section, name)) => defaults.get(section).and_then(|section| section.get(name)),
        None => defaults.get(key),
    };
    found.expect("a key of the list of settings")
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        Some((section, name)) => {
            let section = table.get_mut(section).and_then(Value::as_table_mut);
            section.expect("a section of the defaults").insert(name.to_owned(), value);
        }
        None => drop(table.insert(key.to_owned(), value)),
    }
}

fn merge(table: &mut Table, over: &Table) {
    for (name, value) in over {
        match (table.get_mut(name), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => drop(table.insert(name.clone(), value.clone())),
        }
    }
}

/// Turn a text into a value of the default's type.
fn typed(text: &str, default: &Value) -> Result<Value, String> {
    let is_true = |text: &str| match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" | "" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    };
    Ok(match default {
        Value::Boolean(_) => Value::Boolean(is_true(text)?),
        Value::Integer(_) => {
            let number = text.parse().map_err(|_| format!("{text:?} is no whole number"))?;
            Value::Integer(number)
        }
        Value::Array(_) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
        }
        _ => Value::String(text.to_owned()),
    })
}

fn flag_of(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

fn variable_of(key: &str) -> String {
    format!("{ENVIRONMENT}{}", key.replace('.', "_").to_uppercase())
}

fn command(defaults: &Table) -> Command {
    let settings = HELP.iter().filter(|(key, _)| *key != "store").map(|(key, help)| {
        let flag = Arg::new(*key).long(flag_of(key)).help(*help);
        match default_of(defaults, key) {
            Value::Boolean(_) => flag.action(ArgAction::SetTrue),
            default => {
                let shown = match default {
                    Value::String(text) => text.clone(),
                    Value::Array(_) => String::new(),
                    other => other.to_string(),
                };
                let help =
                    if shown.is_empty() { (*help).to_owned() } else { format!("{help} [{shown}]") };
                flag.value_name("VALUE").help(help)
            }
        }
    });
    Command::new("falaj-server")
        .about("Serve a store over HTTP. The server is one more process on the store's directory.")
        .version(env!("CARGO_PKG_VERSION"))
        .arg(Arg::new("store").value_name("STORE").help("directory of the store; it is made if it does not exist"))
        .arg(
            Arg::new("named")
                .short('s')
                .long("store")
                .value_name("PATH")
                .help("the same as STORE; without both, the file's store, or else FALAJ_STORE"),
        )
        .arg(Arg::new("config").long("config").value_name("FILE").help("TOML file of settings"))
        .arg(
            Arg::new("print-config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("print all settings as TOML, and end"),
        )
        .arg(
            Arg::new("mint-token")
                .long("mint-token")
                .action(ArgAction::SetTrue)
                .help("make a token, print it and what stands for it in the file of principals, and end"),
        )
        .args(settings)
        .after_help(
            "Each setting can stand in the TOML file (limits.body), in the environment (FALAJ_SERVER_LIMITS_BODY) or \
             among the flags (--limits-body). A flag wins over the environment, the environment over the file.",
        )
}

type Given = (String, String, String);

fn from_flags(matches: &ArgMatches, defaults: &Table) -> Vec<Given> {
    let settings = HELP.iter().filter_map(|(key, _)| {
        let text = match default_of(defaults, key) {
            Value::Boolean(_) => matches.get_flag(key).then(|| "true".to_owned()),
            _ => matches.get_one::<String>(key).cloned(),
        };
        text.map(|text| ((*key).to_owned(), text, format!("--{}", flag_of(key))))
    });
    settings.collect()
}

struct Environment {
    settings: Vec<Given>,
    file: Option<String>,
    /// The store of every command of the program `falaj`, where nothing else names one.
    store: Option<String>,
}

fn from_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    defaults: &Table,
) -> Result<Environment, String> {
    let mut found = Environment { settings: Vec::new(), file: None, store: None };
    for (name, value) in environment {
        if name == "FALAJ_STORE" {
            found.store = value.into_string().ok();
            continue;
        }
        let Some(name) = name.to_str().filter(|name| name.starts_with(ENVIRONMENT)) else {
            continue;
        };
        let value = value.into_string().map_err(|_| format!("{name}: its value is not UTF-8"))?;
        if name == "FALAJ_SERVER_CONFIG" {
            found.file = Some(value);
            continue;
        }
        let key = HELP.iter().map(|(key, _)| *key).find(|key| variable_of(key) == name);
        let key = key
            .ok_or_else(|| format!("{name}: there is no such setting; {}", known(defaults, "")))?;
        found.settings.push((key.to_owned(), value, name.to_owned()));
    }
    // The order of the environment must not matter.
    found.settings.sort();
    Ok(found)
}

fn read_file(path: &Path, defaults: &Table) -> Result<Table, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text, defaults).map_err(|why| format!("{}: {why}", path.display()))
}

/// Read the text of a file of settings.
///
/// # Errors
/// A sentence that names the setting.
pub fn read_text(text: &str) -> Result<(), String> {
    parse(text, &defaults()).map(drop)
}

fn parse(text: &str, defaults: &Table) -> Result<Table, String> {
    let table: Table =
        text.parse().map_err(|error: toml::de::Error| error.to_string().trim().to_owned())?;
    for (name, value) in &table {
        let unknown = |key: &str, section: &str| {
            let known = known(defaults, section);
            Err(format!("there is no setting {key}; {known}"))
        };
        match (defaults.get(name), value) {
            (None, _) => return unknown(name, ""),
            (Some(Value::Table(below)), Value::Table(above)) => {
                if let Some(strange) = above.keys().find(|key| !below.contains_key(*key)) {
                    return unknown(&format!("{name}.{strange}"), name);
                }
            }
            _ => {}
        }
    }
    // Types are checked here, so that a mistake is reported with the name of the file.
    let mut whole = defaults.clone();
    merge(&mut whole, &table);
    let checked: Result<Config, toml::de::Error> = whole.try_into();
    checked.map_err(|error| error.message().to_owned())?;
    Ok(table)
}

/// Say which settings there are, in all or in a section.
fn known(defaults: &Table, section: &str) -> String {
    let keys: Vec<_> = match defaults.get(section) {
        Some(Value::Table(section)) => section.keys().map(String::as_str).collect(),
        _ => HELP.iter().map(|(key, _)| *key).collect(),
    };
    format!(
        "settings{} are {}",
        if section.is_empty() { "" } else { " of this section" },
        keys.join(", ")
    )
}

/// Write settings as a TOML file that says what each is for.
fn print(config: &Config) -> String {
    let table = Table::try_from(config).expect("settings are a table");
    let mut text = String::new();
    let mut section = "";
    for (key, help) in HELP {
        let (of, name) = key.split_once('.').unwrap_or(("", key));
        if of != section {
            section = of;
            text += &format!("\n[{section}]\n");
        }
        let value = default_of(&table, key);
        text += &format!("{name} = {value} # {help}\n");
    }
    text
}

impl Limits {
    /// Refuse a limit of nothing where no request could keep it. No followers, members, workers or resets are a choice.
    fn expect_some(&self) -> Result<(), String> {
        let numbers = [("batch", self.batch), ("connections", self.connections)];
        let sizes = [
            ("body", self.body),
            ("decoded_body", self.decoded_body),
            ("record", self.record),
            ("bytes_in_flight", self.bytes_in_flight),
        ];
        let times = [
            ("header_timeout", self.header_timeout),
            ("body_timeout", self.body_timeout),
            ("write_timeout", self.write_timeout),
            ("ping", self.ping),
        ];
        let numbers = numbers.map(|(name, number)| (name, number == 0, "1"));
        let sizes = sizes.map(|(name, size)| (name, size.0 == 0, "\"1B\""));
        let times = times.map(|(name, time)| (name, time.0.is_zero(), "\"1ms\""));
        match numbers.into_iter().chain(sizes).chain(times).find(|(_, is_zero, _)| *is_zero) {
            Some((name, _, least)) => Err(format!(
                "limits.{name} is 0, and no request could keep it; write {least} or more"
            )),
            None => Ok(()),
        }
    }
}

impl Config {
    /// Refuse settings that contradict each other.
    ///
    /// # Errors
    /// A sentence that names them.
    pub fn check(&self) -> Result<(), String> {
        if self.store.is_empty() {
            return Err("which store? Name its directory: falaj-server STORE".to_owned());
        }
        if self.tls.certificate.is_empty() != self.tls.key.is_empty() {
            return Err("tls.certificate and tls.key go together; give both or none".to_owned());
        }
        let limits = &self.limits;
        limits.expect_some()?;
        if limits.record > limits.decoded_body {
            let (record, body) = (limits.record, limits.decoded_body);
            return Err(format!(
                "limits.record ({record}) is above limits.decoded_body ({body}), so it limits nothing"
            ));
        }
        // A compressed body is in memory beside what it unpacks into.
        if limits.bytes_in_flight.0 < limits.body.0.saturating_add(limits.decoded_body.0) {
            let (all, body, decoded) = (limits.bytes_in_flight, limits.body, limits.decoded_body);
            return Err(format!(
                "limits.bytes_in_flight ({all}) is below limits.body ({body}) and limits.decoded_body ({decoded}) together, so a compressed body could wait without end"
            ));
        }
        if let Some(part) = self.log.level.split(',').find(|part| !is_directive(part.trim())) {
            return Err(format!(
                "log.level: {part:?} is no level; write error, warn, info, debug, trace or off, or directives as \
                 warn,falaj_server=debug"
            ));
        }
        if let Some(origin) = self.access.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(format!(
                "access.origins: {origin:?} is no origin; write it as https://app.example"
            ));
        }
        Ok(())
    }
}

/// True for a level, and for what says which level something has. A mere name would mean all lines of that module.
fn is_directive(text: &str) -> bool {
    text.contains('=') || text.parse::<LevelFilter>().is_ok()
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|host| !host.is_empty() && !host.contains('/'))
}

#[cfg(test)]
mod tests;
