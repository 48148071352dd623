//! From a configuration to a server that ends in order.
//!
//! ```text
//! open place and store -> permissions -> certificates -> listen -> ready -> signals: SIGTERM and SIGINT end, SIGHUP reads again
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use listenfd::ListenFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access::{Access, Browser, Principals, digest, make_or_read, read_token};
use crate::config::Config;
use crate::http::{App, listen};
use crate::place::Place;
use crate::store::Served;
use crate::tls::Certificates;

/// How often certificates are looked at.
const LOOK: Duration = Duration::from_secs(30);

/// Serve until a signal ends it.
///
/// # Errors
/// A sentence for standard error, where the server cannot start.
pub async fn run(config: Config) -> Result<(), String> {
    allow_open_files();
    let tls = Certificates::read(&config.tls)?;
    let listener = match config.http.as_str() {
        "off" => return Err("the HTTP door is off, and there is no other one".to_owned()),
        address => listen_on(address).await?,
    };
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    // An address that must not be served is refused before the store is touched.
    access(&config, address.ip(), tls.is_some(), None)?;
    let opening = config.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let place = Place::open(&opening)?;
        Ok::<_, String>((Served::open(&opening).map_err(|error| error.to_string())?, place))
    });
    let (served, place) = opened.await.map_err(|error| error.to_string())??;
    let token = match served.is_read_only() {
        true => read_token(Path::new(&config.store))?,
        false => Some(make_or_read(Path::new(&config.store))?),
    };
    let access = access(&config, address.ip(), tls.is_some(), token.as_deref())?;
    if access.admits_none() {
        return Err(format!(
            "no client could come in: {} is served for reading only, and has no token that this user may read; \
             name the clients in access.principals, or say open",
            config.store
        ));
    }
    let browser =
        Browser::new(&config.access.hosts, &config.access.origins, !address.ip().is_loopback());
    let app = App::new(served, place, config, access, browser);
    let has_token = token.is_some();
    // Before the server says that it is ready: a signal right after that must not kill it.
    let signals = signals(app.clone(), address.ip(), tls.clone(), token)?;
    announce(&app, address, tls.is_some(), has_token);
    let signals = tokio::spawn(signals);
    listen::serve(app, listener, tls).await;
    signals.abort();
    Ok(())
}

/// Allow as many open files as this user may have: each connection is one, and shells begin with 1,024.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Take the socket that a service manager made, or bind an address.
async fn listen_on(address: &str) -> Result<TcpListener, String> {
    let told = |error: &dyn std::fmt::Display| format!("http = {address:?}: {error}");
    if let Some(socket) = ListenFd::from_env().take_tcp_listener(0).map_err(|error| told(&error))? {
        socket.set_nonblocking(true).map_err(|error| told(&error))?;
        return TcpListener::from_std(socket).map_err(|error| told(&error));
    }
    TcpListener::bind(address).await.map_err(|error| told(&error))
}

/// Decide who is let in, and refuse to serve an address that nothing protects.
fn access(
    config: &Config,
    address: IpAddr,
    tls: bool,
    token: Option<&str>,
) -> Result<Access, String> {
    let principals = match config.access.principals.as_str() {
        "" => Principals::default(),
        path => Principals::read(Path::new(path))?,
    };
    if address.is_loopback() {
        return Ok(Access::new(config.open, token.map(digest), principals));
    }
    if config.open {
        return Err(format!(
            "{address} can be reached from other machines, and open lets everybody in; serve a loopback address"
        ));
    }
    if !tls && !config.plaintext {
        return Err(format!(
            "{address} can be reached from other machines: give tls.certificate and tls.key, or plaintext behind a proxy that has TLS"
        ));
    }
    if principals.is_empty() {
        return Err(format!(
            "{address} can be reached from other machines: name its clients in access.principals"
        ));
    }
    Ok(Access::new(false, None, principals))
}

/// Say that the door is open, to people and to the service manager.
#[allow(clippy::print_stdout)] // the line that `falaj serve` promises
fn announce(app: &App, address: SocketAddr, tls: bool, token: bool) {
    let scheme = if tls { "https" } else { "http" };
    let line = format!("http {scheme}://{address}");
    println!("{line}");
    let store = &app.config.store;
    let token_file =
        token.then(|| crate::access::token_path(Path::new(store)).display().to_string());
    let place = Some(&app.config.place).filter(|place| !place.is_empty());
    tracing::info!(store, place, address = %address, token = token_file, read_only = app.served.is_read_only(), page = %format!("{scheme}://{address}/"), "serving");
    if app.config.open {
        tracing::warn!("open: every local user and program may read and write this store");
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
}

/// React to signals, and to certificates that change.
fn signals(
    app: App,
    address: IpAddr,
    tls: Option<Arc<Certificates>>,
    token: Option<String>,
) -> Result<impl Future<Output = ()>, String> {
    let on = |kind: SignalKind| signal(kind).map_err(|error| format!("signals: {error}"));
    let (mut terminate, mut interrupt, mut reload) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?, on(SignalKind::hangup())?);
    Ok(async move {
        loop {
            tokio::select! {
                () = received(&mut terminate) => break,
                () = received(&mut interrupt) => break,
                () = received(&mut reload) => reread(&app, address, tls.as_deref(), token.as_deref(), true),
                () = tokio::time::sleep(LOOK) => reread(&app, address, tls.as_deref(), token.as_deref(), false),
            }
        }
        tracing::info!("ending: requests in flight are finished");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        app.drain();
    })
}

async fn received(signal: &mut Signal) {
    signal.recv().await;
}

/// Read certificates again where they changed, and everything when `asked`. A file with a mistake changes nothing.
fn reread(
    app: &App,
    address: IpAddr,
    tls: Option<&Certificates>,
    token: Option<&str>,
    asked: bool,
) {
    match tls.map_or(Ok(false), |tls| tls.reload(asked)) {
        Ok(true) => tracing::info!("the certificates were read again"),
        Ok(false) => {}
        Err(why) => tracing::error!(why, "the certificates stay as they were"),
    }
    if asked {
        match access(&app.config, address, tls.is_some(), token) {
            Ok(access) => {
                app.replace_access(access);
                tracing::info!("the principals were read again");
            }
            Err(why) => tracing::error!(why, "the principals stay as they were"),
        }
    }
}
