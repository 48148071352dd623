//! Certificates: read from PEM files, and read again when they change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Tls;

/// The certificate of now; connections that exist keep theirs.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    loaded: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    stamps: [Option<SystemTime>; 2],
}

impl Certificates {
    /// Read the files that the configuration names; `None` where it names none.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(tls: &Tls) -> Result<Option<Arc<Self>>, String> {
        if tls.certificate.is_empty() {
            return Ok(None);
        }
        let (certificate, key) = (PathBuf::from(&tls.certificate), PathBuf::from(&tls.key));
        let loaded = RwLock::new(load(&certificate, &key)?);
        Ok(Some(Arc::new(Self { certificate, key, loaded })))
    }

    /// Return the acceptor of new connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner).config).into()
    }

    /// Read the files again if one of them changed, or `always`. The old certificate stays where the new one is no good.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn reload(&self, always: bool) -> Result<bool, String> {
        let now = [stamp(&self.certificate), stamp(&self.key)];
        if !always && self.loaded.read().unwrap_or_else(PoisonError::into_inner).stamps == now {
            return Ok(false);
        }
        let loaded = load(&self.certificate, &self.key)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(true)
    }
}

fn stamp(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn load(certificate: &Path, key: &Path) -> Result<Loaded, String> {
    // The stamps come first: a file that changes while it is read is read again.
    let stamps = [stamp(certificate), stamp(key)];
    let in_file = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| in_file(certificate, &error))?;
    if chain.is_empty() {
        return Err(in_file(certificate, &"there is no certificate in this file"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| in_file(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| in_file(certificate, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Loaded { config: Arc::new(config), stamps })
}
